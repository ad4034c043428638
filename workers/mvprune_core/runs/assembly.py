"""From the steps of a compression to its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from mvprune.artifact import WEIGHTS_FILE, Accounting, DatasetSource, LayerCount, ResultInfo
from mvprune.artifact.history import History, Resampled
from mvprune.artifact.manifest import WrittenExample
from mvprune.common.metrics import TESTED, VALIDATION, Names
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.run_options import RunOptions
from mvprune_core.runs.measurements import Measurement
from mvprune_core.runs.resolved import ResolvedRun
from mvprune_core.runs.result import Result, versions
from mvprune_core.runs.spec import Spec
from mvprune_core.runs.stages import Baseline, FinalModel, Masked
from mvprune_core.runs.steps import CompressionRun
from mvprune_core.storing.accounting import account
from mvprune_core.tasks import Objective
from mvprune_core.tasks.resampling import interval


@dataclass(frozen=True)
class Assembly:
    """Puts the result of a run together.

    Attributes:
        run: the run.
        baseline: the dense baseline; None: there is none.
        masked: the pruned model, whose weights are those of the final one.
    """

    run: CompressionRun
    baseline: Baseline | None
    masked: Masked

    def result(
        self,
        final: FinalModel,
        measured: Measurement,
        tested: Measurement | None,
        counts: tuple[Accounting, tuple[LayerCount, ...]],
        above_constant: Mapping[str, float],
    ) -> Result:
        """The result; its model is where it was trained.

        Args:
            final: the model as it is stored.
            measured: its evaluation.
            tested: on the examples to test on; None: there are none.
            counts: of its weights.
            above_constant: the metric of that name, or {}.
        """
        run, resampled = self.run.resolved, self.run.evaluator.resampled(measured, tested)
        metrics = self._compared(VALIDATION, run.objective, measured, resampled) | dict(above_constant)
        if run.test is not None and tested is not None:
            metrics |= self._compared(TESTED, run.test.objective, tested, resampled)
        phases = [final.curve.history()]
        if self.baseline is not None:
            phases = [*self.baseline.history, *phases]
        used = run.used(final.coding, trimmed=final.trimmed)
        return Result(
            model=final.loaded.model,
            tokenizer=final.loaded.tokenizer,
            pruned=final.pruned,
            info=replace(
                _info(run, used, metrics, counts, self.run.notes.texts),
                examples=self._examples(measured),
                classes=run.objective.by_class(measured.predictions),
                dense_classes=() if self.baseline is None else self.baseline.classes,
            ),
            used=used,
            history=History(
                tuple(phases),
                *self.masked.original.after(self.masked.masks.matrices),
                resampled if run.density == 1 else {},
            ),
            coding=final.coding,
            base=run.base,
            sample=run.sample,
        )

    def _compared(
        self, names: Names, objective: Objective, own: Measurement, resampled: Mapping[str, Resampled]
    ) -> dict[str, float]:
        """The metrics of an evaluation, those of the dense model, the differences, and the interval of the primary
        one's."""
        found = {f"{names.own}/{name}": value for name, value in own.metrics.items()}
        if self.baseline is None:
            return found
        dense = self.baseline.metrics if names is VALIDATION else self.baseline.test
        found |= {f"{names.dense}/{name}": value for name, value in dense.items()}
        both = [name for name in own.metrics if name in dense]
        found |= {f"{names.delta}/{name}": own.metrics[name] - dense[name] for name in both}
        primary, data = objective.data.task.primary_metric, objective.data.fingerprint
        if primary in both:
            samples = (each.get(data) for each in (resampled, self.baseline.resampled))
            if bounds := interval(found[f"{names.delta}/{primary}"], *samples):
                found |= {f"{names.low}/{primary}": bounds[0], f"{names.high}/{primary}": bounds[1]}
        return found

    def _examples(self, measured: Measurement) -> tuple[WrittenExample, ...]:
        shown = self.run.resolved.objective.shown(measured.predictions)
        dense = ("",) * len(shown) if self.baseline is None else self.baseline.written or ("",) * len(shown)
        return tuple(WrittenExample(source, one, text) for (source, text), one in zip(shown, dense, strict=True))

    def other_bytes(self, final: FinalModel, measured: Measurement) -> int:
        """Bytes of all files of the artifact but the weights; the artifact is written to a temporary folder."""
        draft = self.result(final, measured, None, self.run.count(final), {})
        with TemporaryDirectory(prefix="mvprune-") as folder:
            manifest = draft.write(Path(folder))
            return manifest.total_bytes - (Path(folder) / WEIGHTS_FILE).stat().st_size


def draft(run: ResolvedRun, model: nn.Module, pruned: Sequence[str], notes: Sequence[str]) -> ResultInfo:
    """The manifest, as far as it is known before training; its metric is 0.

    Args:
        run: the run.
        model: before training.
        pruned: names of the weights that are to be pruned.
        notes: of the run until now.
    """
    accounting, layers = account(model, pruned, run.density)
    return _info(
        run,
        run.used(run.spec.coding, trimmed=run.spec.trim_positions),
        {f"eval/{run.data.task.primary_metric}": 0.0},
        (accounting, layers),
        notes,
    )


def _info(
    run: ResolvedRun,
    used: Spec,
    metrics: Mapping[str, float],
    counts: tuple[Accounting, tuple[LayerCount, ...]],
    notes: Sequence[str],
) -> ResultInfo:
    data = run.data
    return ResultInfo(
        spec=_recorded(run, used),
        model=run.model,
        dataset=DatasetSource(data.task.name, data.fingerprint, len(data.train), len(data.validation)),
        metrics=metrics,
        primary_metric=data.task.primary_metric,
        accounting=counts[0],
        layers=counts[1],
        versions=versions(),
        seed=used.seed,
        notes=(*data.columns, *notes),
    )


def _recorded(run: ResolvedRun, used: Spec) -> Mapping[str, Any]:
    """The options that were used, for the artifact's manifest."""
    spec: dict[str, Any] = {
        "model": run.source.name,
        "model_revision": run.source.revision,
        "task": run.data.task.name,
        "method": {run.method.name: asdict(run.method)},  # type: ignore[call-overload]
        "training": _with_keys({name: value for name, value in asdict(run.settings).items() if value is not None}),
        **_with_keys({one.name: value for one in fields(RunOptions) if _is_given(value := getattr(used, one.name))}),
        "seed": used.seed,
    }
    if run.teacher is not None:
        named = {
            "model": run.named_teacher.name if run.named_teacher else "",
            "revision": run.teacher.revision or "",
        }
        spec["teacher"] = asdict(run.teacher) | named
    if run.given_mask is not None:
        source = run.given_mask.source
        digest = run.given_mask.sha256
        spec["mask_from"] = {"model": source.name, "revision": source.revision, "sha256": digest}
    return spec


def _is_given(value: Any) -> bool:
    """Whether an option of a run has a value; 0 is one, as of length_penalty."""
    return bool(value) or (isinstance(value, int | float) and not isinstance(value, bool))


def _with_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their keys in manifests."""
    return {PARAMETERS[name].manifest_key: value for name, value in options.items()}
