"""From the steps of a compression to its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from mvprune.artifact import WEIGHTS_FILE, Accounting, Coding, DatasetSource, LayerCount, ResultInfo
from mvprune.artifact.history import History
from mvprune_core.accounting import account
from mvprune_core.plan import ResolvedRun
from mvprune_core.result import Result, versions
from mvprune_core.run import CompressionRun
from mvprune_core.stages import Baseline, Folded, Masked

_KEYS = {"lr_density_exponent": "learning_rate_growth"}  # of options whose key in manifests is another


@dataclass(frozen=True)
class Assembly:
    """Puts the result of a run together.

    Attributes:
        run: the run.
        baseline: the dense baseline; None: there is none.
        masked: the pruned model, whose weights are those of the folded one.
    """

    run: CompressionRun
    baseline: Baseline | None
    masked: Masked

    def result(
        self,
        folded: Folded,
        evaluated: Mapping[str, float],
        counts: tuple[Accounting, tuple[LayerCount, ...]],
        above_constant: Mapping[str, float],
    ) -> Result:
        """The result; its model is where it was trained.

        Args:
            folded: the model as it is stored.
            evaluated: its metrics of the task.
            counts: of its weights.
            above_constant: the metric of that name, or {}.
        """
        run = self.run.resolved
        metrics = {f"eval/{name}": value for name, value in evaluated.items()} | dict(above_constant)
        phases = [folded.curve.history()]
        if self.baseline is not None:
            dense = self.baseline.metrics
            metrics = {f"dense/{name}": value for name, value in dense.items()} | metrics
            both = evaluated.keys() & dense.keys()
            metrics |= {f"delta/{name}": evaluated[name] - dense[name] for name in evaluated if name in both}
            phases = [*self.baseline.history, *phases]
        return Result(
            model=folded.loaded.model,
            tokenizer=folded.loaded.tokenizer,
            pruned=folded.pruned,
            info=_info(run, _spec(run, folded.coding, trimmed=folded.trimmed), metrics, counts, self.run.notes.texts),
            history=History(tuple(phases), *self.masked.original.after(self.masked.masks.matrices)),
            coding=folded.coding,
            base=run.base,
            sample=run.sample,
        )

    def other_bytes(self, folded: Folded, evaluated: Mapping[str, float]) -> int:
        """Bytes of all files of the artifact but the weights; the artifact is written to a temporary folder."""
        draft = self.result(folded, evaluated, self.run.count(folded), {})
        with TemporaryDirectory(prefix="mvprune-") as folder:
            manifest = draft.write(Path(folder))
            return manifest.total_bytes - (Path(folder) / WEIGHTS_FILE).stat().st_size


def draft(run: ResolvedRun, model: nn.Module, pruned: Sequence[str], notes: Sequence[str]) -> ResultInfo:
    """What the manifest will say, as far as it is known before training; its metric is 0.

    Args:
        run: the run.
        model: before training.
        pruned: names of the weights that are to be pruned.
        notes: of the run until now.
    """
    accounting, layers = account(model, pruned, run.density)
    return _info(
        run,
        _spec(run, run.coding, trimmed=run.trim_positions),
        {f"eval/{run.data.task.primary_metric}": 0.0},
        (accounting, layers),
        notes,
    )


def _info(
    run: ResolvedRun,
    spec: Mapping[str, Any],
    metrics: Mapping[str, float],
    counts: tuple[Accounting, tuple[LayerCount, ...]],
    notes: Sequence[str],
) -> ResultInfo:
    data = run.data
    return ResultInfo(
        spec=spec,
        model=run.model,
        dataset=DatasetSource(data.task.name, data.fingerprint, len(data.train), len(data.validation)),
        metrics=metrics,
        primary_metric=data.task.primary_metric,
        accounting=counts[0],
        layers=counts[1],
        versions=versions(),
        seed=run.seed,
        notes=(*data.columns, *notes),
    )


def _spec(run: ResolvedRun, coding: Coding, *, trimmed: bool) -> Mapping[str, Any]:
    """The arguments of the run with all defaults, for the artifact's manifest; coding and trimming as they are."""
    training = asdict(run.settings).items()
    spec: dict[str, Any] = {
        "model": run.source.name,
        "model_revision": run.source.revision,
        "task": run.data.task.name,
        "method": {run.method.name: asdict(run.method)},  # type: ignore[call-overload]
        "target_density": run.density,
        "training": {_KEYS.get(name, name): value for name, value in training if value is not None},
        "seed": run.seed,
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
    spec |= {"values": coding.values.value, "embeddings": coding.embeddings.value}
    optional = {
        "pattern": "" if run.pattern is None else str(run.pattern),
        "structure": run.structure and run.structure.structure,
        "structure_density": run.structure and run.structure.density,
        "structure_block_size": run.structure and run.structure.block_size,
        "structure_fill": run.structure and run.structure.fill,
        "include": list(run.include),
        "exclude": list(run.exclude),
        "allow_density_miss": run.allow_density_miss,
        "keep_fine_tuned": run.keep_fine_tuned,
        "trim_vocabulary": run.trim_vocabulary,
        "trim_positions": trimmed,
        "target_bytes": run.target_bytes,
        "delta": run.delta,
    }
    return spec | {name: value for name, value in optional.items() if value}
