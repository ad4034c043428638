"""The steps of a compression. `compress` calls them in their order; each takes what it needs from the one before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import Accounting, ArtifactError, LayerCount, Values, round_values
from mvprune.artifact.class_results import ClassResult
from mvprune.artifact.history import Resampled
from mvprune_core.base.callbacks import Callback
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.base.hub import first_line
from mvprune_core.base.notes import Notes
from mvprune_core.base.state import load_tensors, tensors_of
from mvprune_core.base.storage import Cache, Checkpoints
from mvprune_core.methods import Magnitude
from mvprune_core.models.forward import set_padding_side
from mvprune_core.models.loading import Loaded, load_model
from mvprune_core.pruning.layers import empty_bypassed, remove_structures
from mvprune_core.runs.evaluator import Evaluator
from mvprune_core.runs.keys import RunKeys
from mvprune_core.runs.resolved import Examined, ResolvedRun
from mvprune_core.runs.stages import Baseline, FinalModel, Masked, SizesBefore, Trained
from mvprune_core.runs.teachers import load_for_hidden_states, load_for_logits
from mvprune_core.runs.written_targets import write_targets
from mvprune_core.storing.accounting import account, check_density, note_on_zeros, notes_on_empty
from mvprune_core.storing.flops import count_flops, one_input
from mvprune_core.storing.positions import trim_positions
from mvprune_core.storing.vocabulary import trim_vocabulary
from mvprune_core.tasks.batching import trained_on
from mvprune_core.tasks.chance import note_on
from mvprune_core.tasks.classes import class_names
from mvprune_core.tasks.label_scale import StandardisedLoss
from mvprune_core.tasks.metrics import import_packages_beside
from mvprune_core.training.curves import Curve
from mvprune_core.training.distillation import (
    DistillationLoss,
    HiddenStates,
    check_teacher,
    compute_teacher_logits,
    reorder_classes,
)
from mvprune_core.training.distributions import Distributions
from mvprune_core.training.evaluation import Evaluation
from mvprune_core.training.layer_dropout import layers_dropped
from mvprune_core.training.loop import Trainer
from mvprune_core.training.masking import Masks
from mvprune_core.training.optimization import build_optimizer
from mvprune_core.training.rounded_layers import RoundedLayers

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class CompressionRun:
    """The steps of one compression.

    Attributes:
        resolved: what is compressed, and how.
        keys: identities of the run in the cache.
        student: the original model, until a phase of training takes it.
        callback: receives phases, steps and evaluations.
        notes: receives notes for the result.
        cache: results that other runs share.
        checkpoints: where training resumes from and saves to; None: nowhere.
        group: the ranks, all of which take the same steps.
    """

    resolved: ResolvedRun
    keys: RunKeys
    student: Loaded | None
    callback: Callback
    notes: Notes
    cache: Cache
    checkpoints: Checkpoints | None
    group: Group = ALONE
    _dense: Trained | None = None

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates the models of this run."""
        return Evaluator(self.resolved, self.callback, self.notes, self.group)

    @cached_property
    def taught(self) -> Examined:
        """What the pruned model is trained on: targets that the teacher writes, if it is to, or those of the data."""
        run = self.resolved
        if run.teacher is None or not run.teacher.writes_targets:
            return Examined(run.objective, run.train)
        return write_targets(run, self.keys.targets, self.cache, self.evaluator, lambda: self._train_dense().loaded)

    def baseline(self) -> Baseline | None:
        """The dense baseline; None if the run is to have none.

        This run's own is evaluated. It is trained first, unless it is fine-tuned or the cache has its metrics.
        """
        shared = self.resolved.shared_baseline
        if shared is not None:
            test = self.resolved.test
            of_test = shared.test_metrics(None if test is None else test.objective.data)
            resampled = shared.resampled_by(self.resolved.data.task.primary_metric)
            return Baseline(shared.metrics, resampled, of_test, written=shared.written, classes=shared.classes)
        if not self.resolved.has_own_baseline:
            return None

        def measure() -> dict[str, Any]:
            dense = self._train_dense()
            measured, notes = self.evaluator.evaluate(dense)
            tested = self.evaluator.test(dense, measured)
            resampled = self.evaluator.resampled(measured, tested)
            return {
                "metrics": measured.metrics,
                "steps": dense.steps,
                "curve": dense.curve.state(),
                "notes": notes,
                "resampled": {name: asdict(one) for name, one in resampled.items()},
                "test": {} if tested is None else tested.metrics,
                "written": [text for _, text in self.resolved.objective.shown(measured.predictions)],
                "classes": [asdict(one) for one in self.resolved.objective.by_class(measured.predictions)],
            }

        found = self.cache.facts("baselines", self.keys.baseline, measure)
        curve = Curve("dense", self.resolved.dense_steps)
        curve.restore(found["curve"])
        self.callback.on_evaluate("dense", found["steps"], found["metrics"])
        self.notes.add(*found["notes"])
        resampled = {name: Resampled(**one) for name, one in found["resampled"].items()}
        classes = tuple(ClassResult(**one | {"row": tuple(one["row"])}) for one in found["classes"])
        phases = (curve.history(),)
        return Baseline(found["metrics"], resampled, found["test"], phases, tuple(found["written"]), classes)

    def distillation(self) -> DistillationLoss | None:
        """The loss with the teacher; None without one. Trains the dense model if that is the teacher and must be."""
        run = self.resolved
        if run.teacher is None:
            return None
        # First the hidden states: they require more of the teacher than its logits do.
        hidden = self._hidden_states(run.teacher.hidden_states) if run.teacher.hidden_states else None
        examples = self.taught.examples
        if not run.teacher.learns_outputs:
            return DistillationLoss({}, {}, (), run.teacher.temperature, run.teacher.alpha, hidden)
        logits = self.cache.tensors("logits", self.keys.logits, self._teacher_logits)
        if run.named_teacher is not None:
            failure = check_teacher(logits, run.objective, examples, class_names(run.config))
            self.notes.add(*[note_on(failure, "the teacher")] if failure else [])
            if run.value_head is not None:  # its own dense model is read standardised
                scale, outputs = run.value_head.scale, run.objective.outputs
                logits = logits | {each.name: scale.standardised(logits[each.name]) for each in outputs}
        return DistillationLoss.from_logits(logits, run.objective.outputs, run.teacher, hidden)

    def prune(self, distillation: DistillationLoss | None) -> Masked:
        """Trains the original model, or the dense one, while the masks follow the schedule."""
        run = self.resolved
        given, start = run.given_mask, run.start
        weights = self._dense_weights() if run.prunes_dense else None if start is None else start.weights
        dense, self._dense = self._dense, None
        loaded = dense.loaded if dense is not None and dense.steps == 0 else None  # it was only evaluated
        del dense  # frees its memory
        loaded = loaded or self._take_student()
        model = loaded.model.to(run.device)
        layers = run.layers_of(model)
        if weights is not None:  # the head among them was trained
            load_tensors(model, weights)
            loaded = replace(loaded, new=tuple(name for name in loaded.new if name not in weights))
        del weights
        if run.is_kept:
            return self._keep(loaded, layers)
        if given is not None:
            load_tensors(model, given.weights)
        rounded = RoundedLayers(model) if run.spec.rounds else None
        masks = Masks(
            model,
            run.method,
            density=run.density,
            total_steps=run.total_steps,
            seed=run.spec.seed,
            layers=layers,
            given=None if given is None else given.masks,
            start=None if start is None else start.masks,
            selector=run.selector,
        )
        original, curve = Distributions(masks.matrices), Curve("pruning", run.total_steps)
        dropped = [model.get_submodule(each.block) for each in run.structures if run.spec.layer_dropout]
        with (
            empty_bypassed(model, run.structures),
            layers_dropped(dropped, run.spec.layer_dropout or 0, run.spec.seed) as draw,
        ):
            steps = self._train(
                loaded, curve, masks, distillation, rounded, steps_before=run.dense_steps, before_step=draw
            )
        return Masked(loaded, curve, steps, masks, original)

    def _keep(self, loaded: Loaded, layers: Mapping[str, nn.Linear | Conv1D]) -> Masked:
        """The original model as the result of a run with density 1."""
        run, model = self.resolved, loaded.model
        values = {name: value.clone() for name, value in tensors_of(model).items()}
        # Not the run's method: the gates of some methods change the weights.
        options: dict[str, Any] = {"density": run.density, "total_steps": run.total_steps, "seed": run.spec.seed}
        masks = Masks(model, Magnitude(), layers=layers, **options)
        original = Distributions(masks.matrices)
        masks.finalize()
        load_tensors(model, values)  # masks replace zeros
        self.notes.add("the model was taken as fine-tuned for this data, and was not trained again (keep_fine_tuned)")
        return Masked(loaded, Curve("pruning", 0), 0, masks, original)

    def apply_masks(self, masked: Masked) -> FinalModel:
        """Turns a masked model, in place, into the plain model that the artifact stores."""
        run, loaded, names = self.resolved, masked.loaded, masked.masks.weight_names
        before = SizesBefore.of(loaded.model, names)
        if run.structures and not run.is_kept:  # a model that is kept as it is keeps its own zeros
            before = replace(before, flops=self._flops(loaded.model, names)[0])
            names, note = remove_structures(loaded.model, run.structures, names)
            self.notes.add(note)
        if run.spec.trim_vocabulary:
            self.notes.add(trim_vocabulary(loaded.model, loaded.tokenizer, (run.train, run.validation)))
        if run.spec.trim_positions:
            self.notes.add(trim_positions(loaded.model, loaded.tokenizer, run.max_length))
        parameters = dict(loaded.model.named_parameters())
        kept = sum(int(torch.count_nonzero(parameters[name])) for name in names)
        try:
            round_values(loaded.model, names, run.spec.coding, run.base)
        except ArtifactError as error:
            raise CompressionError(
                Reason.NAN_LOSS,
                f"training diverged ({error}); lower the learning rate ({run.settings.learning_rate:g}), or, if the "
                "value is finite, take weight_dtype and embedding_dtype bf16",
            ) from error
        set_padding_side(loaded.tokenizer, run.train.padding_side)
        loaded.config.update(run.objective.config_of_run(loaded.config, run.max_length))
        density = self._filled_density(masked.masks) if run.selector.fills else run.density
        return FinalModel(
            loaded,
            masked.curve,
            masked.steps,
            pruned=names,
            before=before,
            coding=run.spec.coding,
            density=density,
            kept=kept,
            trimmed=run.spec.trim_positions,
        )

    def _filled_density(self, masks: Masks) -> float:
        filled, density = masks.current_density, self.resolved.selector.nearest(self.resolved.density)
        self.notes.add(
            f"blocks and units of density {density:.4g} were filled: all weights of the heads and units that stay came "
            f"back, which are {filled:.4g} of the weights"
        )
        return filled

    def account(self, final: FinalModel) -> tuple[Accounting, tuple[LayerCount, ...]]:
        """Counts the weights that are left, and checks their density."""
        run, before = self.resolved, final.before
        accounting, layers = self.count(final)
        # int4 has no place for the small weights of a row: that is what was asked for, and no failure of the training.
        is_coarse = final.coding.values is Values.INT4
        if not (run.spec.allow_density_miss or run.is_kept):
            remedy = "take more steps, store finer values"
            kept = final.kept if is_coarse else accounting.kept_weights
            check_density(final.density, kept, accounting.prunable_weights, remedy)
        if is_coarse and accounting.kept_weights < final.kept:
            self.notes.add(note_on_zeros(final.kept, accounting.kept_weights, accounting.prunable_weights))
        if not run.is_kept:
            is_global = not run.structures and getattr(run.method, "selection", "") == "global"
            self.notes.add(*notes_on_empty(layers, is_global=is_global))
        dense, sparse = self._flops(final.loaded.model, final.pruned)
        dense = before.flops or dense if sparse else 0
        return replace(accounting, dense_flops=dense, sparse_flops=sparse), layers

    def count(self, final: FinalModel) -> tuple[Accounting, tuple[LayerCount, ...]]:
        """Counts the weights that are left."""
        before = final.before
        return account(final.loaded.model, final.pruned, self.resolved.density, before.parameters, before.prunable)

    def _flops(self, model: nn.Module, pruned: Sequence[str]) -> tuple[int, int]:
        """FLOPs, dense and of the weights left; 0 where they cannot be counted."""
        run, model = self.resolved, model.to(self.resolved.device)
        batch = run.validation.batch(np.array([0]), run.device, np.random.default_rng(0))
        try:
            return count_flops(model, one_input(batch, run.max_length), pruned)
        except Exception as error:  # a model's own code may raise anything, and memory may run out: it is only a count
            log.debug("counting FLOPs: %s: %s", type(error).__name__, first_line(error))
            self.notes.add(f"FLOPs are not counted for {type(model).__name__}: the result says nothing of them")
            return 0, 0

    def _train(
        self,
        loaded: Loaded,
        curve: Curve,
        masks: Masks | None = None,
        distillation: DistillationLoss | None = None,
        rounded: RoundedLayers | None = None,
        *,
        steps_before: int = 0,
        before_step: Callable[[int], None] = lambda step: None,
    ) -> int:
        """Trains a model for one phase. Returns the number of steps."""
        imported = import_packages_beside(self.resolved.objective.imports)
        run, model = self.resolved, loaded.model.to(self.resolved.device)
        settings = run.dense_settings if masks is None else run.settings
        loss, head = run.objective.loss(run.config), run.value_head
        metric = run.settings.best_metric or run.data.task.primary_metric

        def measure(step: int) -> dict[str, float]:
            with nullcontext() if head is None else head.in_data_scale(model):
                metrics = self.evaluator.measure(loaded, curve, step, on_the_way=True).metrics
            self.callback.on_evaluate(curve.phase, step, metrics)
            if metric not in metrics:  # such as that of a second validation file
                raise CompressionError(
                    Reason.INVALID_DATASET,
                    f"training.best_metric must be a metric of the validation data ({', '.join(metrics)}), got "
                    f"{metric!r}",
                )
            return metrics

        def check() -> None:
            if imported.done():
                imported.result()

        self.callback.on_phase(curve.phase)
        trainer = Trainer(
            model=model,
            optimizer=build_optimizer(model, settings, masks, loaded.new),
            examples=run.train if masks is None else self.taught.examples,
            loss=loss if head is None else StandardisedLoss(loss, head.scale),
            settings=settings,
            curve=curve,
            seed=run.spec.seed,
            callback=self.callback,
            masks=masks,
            rounded=rounded,
            distillation=distillation,
            evaluation=Evaluation(
                measure, metric, metric not in run.data.task.kind.losses, check, self.evaluator.measurements.keep_best
            ),
            checkpoints=self.checkpoints,
            steps_before=steps_before,
            notes=self.notes,
            group=self.group,
            before_step=before_step,
        )
        with nullcontext() if head is None else head.trained(model, loaded.new):
            return trainer.run()

    def _train_dense(self) -> Trained:
        """The dense model. It is trained at most once, and only if something that it gives is not cached."""
        if self._dense is None:
            loaded, curve = self._take_student(), Curve("dense", self.resolved.dense_steps)
            steps = 0 if loaded.fine_tuned else self._train(loaded, curve)
            self._dense = Trained(loaded, curve, steps)
        return self._dense

    def _dense_weights(self) -> Mapping[str, Tensor]:
        """The weights of the dense model, which another run or this one trained."""
        run = self.resolved
        if run.shared_baseline is not None and run.named_teacher is not None:
            return tensors_of(load_model(run.named_teacher, run.objective, run.spec.seed).model)
        return self.cache.tensors("dense", self.keys.dense, lambda: tensors_of(self._train_dense().loaded.model))

    def _hidden_states(self, weight: float) -> HiddenStates:
        run = self.resolved
        if run.named_teacher is None:
            teacher = self._load_student()
            load_tensors(teacher.model, self._dense_weights())
        else:
            teacher = load_for_hidden_states(run.named_teacher, run)
        model = teacher.model.to(run.device).eval().requires_grad_(False)
        return HiddenStates(model, weight, run.settings.precision, run.train.per_token)

    def _teacher_logits(self) -> dict[str, Tensor]:
        run = self.resolved
        if run.named_teacher is None:
            teacher, examples = self._train_dense().loaded, self.taught.examples
        else:
            teacher, examples = load_for_logits(run.named_teacher, run, self.cache, self.taught)
        which = trained_on(self.taught.examples.lengths, run.settings.batch_size, run.spec.seed, run.total_steps)
        model, outputs = teacher.model.to(run.device), run.objective.outputs
        own_head = run.value_head if run.named_teacher is None else None
        scale = nullcontext() if own_head is None else own_head.standardised(model)
        with self.evaluator.counted("teaching", model, len(which)), scale:
            found = compute_teacher_logits(
                model, examples, which, outputs, run.device, run.settings.precision, self.group
            )
        return reorder_classes(found, outputs, run.class_order(teacher.config), run.class_order(run.config))

    def _load_student(self) -> Loaded:
        return load_model(self.resolved.source, self.resolved.objective, self.resolved.spec.seed)

    def _take_student(self) -> Loaded:
        """The original model: the loaded one the first time, then read again."""
        student, self.student = self.student, None
        return self._load_student() if student is None else student
