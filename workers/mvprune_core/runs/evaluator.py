"""Evaluations of the models of a run: while they are trained, as they are stored, and beside a constant answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from mvprune.artifact import Coding, Values
from mvprune.artifact.history import Resampled
from mvprune.common.metrics import ABOVE_CONSTANT
from mvprune.runtime.rounding import int8_simulated
from mvprune_core.base.callbacks import Callback
from mvprune_core.base.group import Group
from mvprune_core.base.interruption import check_stop
from mvprune_core.base.notes import Notes
from mvprune_core.base.state import digest_of
from mvprune_core.models.loading import Loaded
from mvprune_core.runs.divergence import sample
from mvprune_core.runs.measurements import Measurement, Measurements
from mvprune_core.runs.plateau import above_constant, notes_on_loss, notes_on_result, what_helps
from mvprune_core.runs.quantized import fit_target, quantize_embeddings, round_matrices
from mvprune_core.runs.resolved import Examined, ResolvedRun
from mvprune_core.runs.stages import Baseline, FinalModel, Trained
from mvprune_core.tasks.chance import note_on
from mvprune_core.tasks.passes import counted
from mvprune_core.tasks.resampling import resampled
from mvprune_core.training.curves import Curve
from mvprune_core.training.distillation import compute_teacher_logits

_EXACT = Coding(Values.FP32, Values.FP32)
_TAKEN = "the model was taken as fine-tuned for this data, and"


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates the models of a run on its validation examples.

    Attributes:
        resolved: what is compressed, and how.
        callback: receives phases, examples and evaluations.
        notes: receives notes for the result.
        group: the ranks, which share the examples.
        measurements: evaluations that may be asked for again.
    """

    resolved: ResolvedRun
    callback: Callback
    notes: Notes
    group: Group
    measurements: Measurements = field(default_factory=Measurements)

    def evaluate(self, trained: Trained, *, on_the_way: bool = False) -> tuple[Measurement, list[str]]:
        """An evaluation, and notes on it; on all validation examples, or on those for evaluations during training."""
        check_stop(self.group)
        examined = self._examined(on_the_way=on_the_way)
        with self.counted("evaluating", trained.loaded.model, len(examined.examples)), self._as_run(trained):
            measured = self.measure(trained.loaded, trained.curve, trained.steps, on_the_way=on_the_way)
        failure = examined.objective.sanity_check(measured.predictions)
        is_dense = trained.curve.phase == "dense"
        if self.resolved.is_kept or (is_dense and self.resolved.fine_tuned):
            return measured, [] if failure is None else [note_on(failure, _TAKEN)]
        if not is_dense or failure is None or not failure.by_chance:  # see above_constant
            return measured, []
        return measured, [note_on(replace(failure, fit=""), "the dense model")]

    def test(self, trained: Trained, measured: Measurement) -> Measurement | None:
        """The evaluation of a model on the examples to test on; None where there are none. The phase goes on.

        Args:
            trained: the model.
            measured: its evaluation on the validation examples.
        """
        run, test, model = self.resolved, self.resolved.test, trained.loaded.model
        if test is None:
            return None
        check_stop(self.group)
        with self._examples_counted("evaluating", model, len(test.examples)), self._as_run(trained):
            objective = replace(run.objective.fixed(measured.predictions), data=test.objective.data)
            if objective.is_against_given:
                objective = objective.against(test.objective.of_given)
            found = objective.predict(model.to(run.device), test.examples, run.device, self.group)
        return Measurement(objective.measure(found), found)

    def resampled(self, measured: Measurement, tested: Measurement | None) -> dict[str, Resampled]:
        """The primary metric of evaluations on samples of their examples, by the fingerprints of the data; without
        those of which the task has none.

        Args:
            measured: on the validation examples.
            tested: on those to test on.
        """
        test = self.resolved.test
        pairs = [(self.resolved.objective, measured)]
        pairs += [(test.objective, tested)] if test is not None and tested is not None else []
        found = {objective.data.fingerprint: objective.sample_metric(each.predictions) for objective, each in pairs}
        return {name: resampled(*one) for name, one in found.items() if one is not None}

    def measure(self, loaded: Loaded, curve: Curve, step: int, *, on_the_way: bool = False) -> Measurement:
        """The evaluation of a model after `step` steps of a phase, which its curve records; while it is trained that on
        the examples for it."""
        run, digest = self.resolved, None
        objective, examples = self._examined(on_the_way=on_the_way)
        # The last model that was evaluated in training, or the best one, is the result if it is stored as it is.
        is_stored = run.spec.coding == _EXACT and not run.spec.rounds
        if self._is_whole and run.settings.evaluate_every and (curve.phase == "dense" or is_stored):
            digest = digest_of(loaded.model)
        found = self.measurements.get(digest)
        if found is None:
            is_given = curve.phase == "dense" and not step and not on_the_way
            predictions = objective.of_given if is_given else None
            if predictions is None:
                predictions = objective.predict(loaded.model.to(run.device), examples, run.device, self.group)
            found = Measurement(objective.measure(predictions), predictions)
        if digest is not None:
            self.measurements.add(digest, found)
        curve.add_evaluation(step, found.metrics)
        return Measurement(dict(found.metrics), found.predictions)

    @contextmanager
    def counted(self, phase: str, model: nn.Module, total: int) -> Iterator[None]:
        """A context in which the model reads `total` examples once, and the callback receives how many it has read."""
        self.callback.on_phase(phase)
        with self._examples_counted(phase, model, total):
            yield

    def evaluate_stored(
        self, final: FinalModel, others: Callable[[FinalModel, Measurement], int]
    ) -> tuple[FinalModel, Measurement]:
        """The final model as it is stored, and its evaluation: fitted into the target size, with embeddings as those
        of the artifact that pruning went on from, or in int8 if these may be and cost nearly nothing.

        Args:
            final: the model.
            others: gives the bytes of all files of its artifact but the weights.
        """
        run = self.resolved
        if (start := run.coding_of_start) is not None:
            coding = replace(final.coding, embeddings=start.embeddings, others=start.others)
            round_matrices(final, coding, run.base)
            final = replace(final, coding=coding)
        chooses = run.spec.target_bytes is not None or (run.spec.embedding_dtype is None and start is None)
        measured, notes = self.evaluate(final, on_the_way=chooses)
        notes += run.objective.keep(final.loaded.model.config, measured.predictions)
        if run.spec.target_bytes is not None:
            size = self.group.broadcast(others(final, measured) if self.group.rank == 0 else 0)
            final, measured, chosen = fit_target(final, measured, run, self._remeasure, self._outputs, size)
            self.notes.add(*chosen)
        elif chooses:
            final, measured, chosen = quantize_embeddings(final, measured, run, self._remeasure)
            self.notes.add(*chosen)
        if chooses and not self._is_whole:
            measured, notes = self.evaluate(final)
        self.callback.on_evaluate("pruning", final.steps, measured.metrics)
        signature = run.objective.signature()
        self.notes.add(*notes, *[f"metrics are {signature}"] * bool(signature))
        return final, measured

    def above_constant(
        self, final: FinalModel, metrics: Mapping[str, float], baseline: Baseline | None
    ) -> dict[str, float]:
        """The metric above_constant of a result, {} where it is not known; with notes on a run that was too short.

        Args:
            final: the model as it is stored.
            metrics: its metrics of the task.
            baseline: the dense baseline; None: there is none.
        """
        run = self.resolved
        constants = run.objective.constant_metrics(run.validation)
        if not run.is_kept:
            dense, is_pruned = None if baseline is None else baseline.metrics, run.density < 1
            found = notes_on_result(
                *(run.data.task, metrics, constants, len(run.data.validation), dense),
                is_pruned=is_pruned,
                remedy=what_helps(run),
            )
            self.notes.add(*found)
        starts_trained = run.fine_tuned or run.start is not None or run.prunes_dense  # it has no loss to lose
        if not (starts_trained or run.density == 1):
            self.notes.add(*notes_on_loss(final.curve.history(), what_helps(run)))
        above = above_constant(run.data.task, metrics, constants)
        return {} if above is None else {ABOVE_CONSTANT: above[0]}

    def _remeasure(self, final: FinalModel) -> Measurement:
        """The evaluation of a final model whose values were rounded again, on the examples for evaluations during
        training; the phase goes on."""
        check_stop(self.group)
        model, count = final.loaded.model, len(self.resolved.on_the_way.examples)
        with self._examples_counted("evaluating", model, count), self._as_run(final):
            return self.measure(final.loaded, final.curve, final.steps, on_the_way=True)

    @property
    def _is_whole(self) -> bool:
        """Whether evaluations during training are on all examples."""
        return self.resolved.on_the_way.examples is self.resolved.validation

    def _examined(self, *, on_the_way: bool) -> Examined:
        run = self.resolved
        return run.on_the_way if on_the_way else Examined(run.objective, run.validation)

    def _outputs(self, final: FinalModel) -> dict[str, Tensor]:
        """The logits of a final model for a sample of the validation examples; {} where a student learns from none, or
        which are not stored whole."""
        run, which = self.resolved, sample(len(self.resolved.validation))
        if not run.objective.outputs or any(each.bytes_per_token for each in run.objective.outputs):
            return {}
        model = final.loaded.model.to(run.device)
        with self._examples_counted("evaluating", model, len(which)), self._as_run(final):
            return compute_teacher_logits(
                model, run.validation, which, run.objective.outputs, run.device, "fp32", self.group
            )

    def _as_run(self, trained: Trained) -> AbstractContextManager[None]:
        """A context in which the result computes as it will be run."""
        rounds = self.resolved.spec.rounds and isinstance(trained, FinalModel)
        return int8_simulated(trained.loaded.model) if rounds else nullcontext()

    def _examples_counted(self, phase: str, model: nn.Module, total: int) -> AbstractContextManager[None]:
        size = self.group.size  # the other ranks read as many meanwhile
        return counted(model, lambda done: self.callback.on_examples(phase, min(done * size, total), total))
