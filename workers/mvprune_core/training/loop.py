"""Fine-tuning: one training loop for dense and for masked models."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from mvprune_core.base.callbacks import Callback, Progress
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, STEPS_BETWEEN_CHECKS, Group, check_same_tensors
from mvprune_core.base.heap import freed_memory_kept
from mvprune_core.base.interruption import Stopped, stop_requested
from mvprune_core.base.notes import Notes
from mvprune_core.base.settings import Settings
from mvprune_core.base.state import load_tensors, random_states, seeded, set_random_states, tensors_of
from mvprune_core.base.storage import Checkpoints
from mvprune_core.tasks.batching import Examples, Indices, training_batches
from mvprune_core.tasks.losses import Loss
from mvprune_core.training.curves import Curve
from mvprune_core.training.distillation import DistillationLoss
from mvprune_core.training.evaluation import BestModel, Evaluation
from mvprune_core.training.gradients import BatchGradients
from mvprune_core.training.masking import Masks
from mvprune_core.training.optimization import Optimizer
from mvprune_core.training.rounded_layers import RoundedLayers
from mvprune_core.training.sparse_products import SparseProducts
from mvprune_core.training.training_mode import training_mode

_STEPS_BETWEEN_SYNCS = 10  # on a device that runs asynchronously


@dataclass(kw_only=True, eq=False)
class Trainer:
    """One phase of training; prunes the model at the same time if there are masks.

    Masks are updated after every step, so an evaluation always sees the current masks. The same seed, number of threads
    and choice of sparse products, which checkpoints hold, give the same model, bit for bit, however often the run is
    stopped and resumed.

    The ranks of a group each compute the gradients of some parts of a batch, and share the sum. All else they compute
    alike, from the same state. So another number of ranks gives the same model up to rounding.

    Attributes:
        model: trained in place, on its device.
        optimizer: of the model and the masks, see `build_optimizer`.
        examples: the training examples.
        loss: what is minimized, beside the terms of a teacher.
        settings: training settings.
        curve: names the phase and its number of steps; records loss and density.
        seed: seed of batches and dropout.
        callback: receives every step.
        masks: masks of the model.
        rounded: the layers that round from the step on at which the density is final, in evaluations too.
        distillation: the loss with a teacher.
        evaluation: required if the settings evaluate during training.
        checkpoints: where to resume from and save to.
        steps_before: steps of the phases before this one.
        notes: receives which products are sparse.
        group: the ranks; rank 0 decides when to stop and to save, and saves.
        before_step: called with the steps done, before the next one.
        step: steps done.
    """

    model: nn.Module
    optimizer: Optimizer
    examples: Examples
    loss: Loss
    settings: Settings
    curve: Curve
    seed: int
    callback: Callback
    masks: Masks | None = None
    rounded: RoundedLayers | None = None
    distillation: DistillationLoss | None = None
    evaluation: Evaluation | None = None
    checkpoints: Checkpoints | None = None
    steps_before: int = 0
    notes: Notes | None = None
    group: Group = ALONE
    before_step: Callable[[int], None] = lambda step: None
    step: int = field(default=0, init=False)
    _best: BestModel = field(default_factory=BestModel, init=False)
    _loss: float = field(default=math.nan, init=False)
    _evaluated: int = field(default=0, init=False)  # the step of the last evaluation

    def run(self) -> int:
        """Trains to the end, from the newest checkpoint if there is one. Returns the number of steps done.

        Raises:
            CompressionError: NAN_LOSS.
            RanksDiverged: the ranks no longer have the same weights, scores or masks.
            Stopped: `request_stop` was called; a checkpoint was written before.
        """
        with seeded(self.seed, self.device), training_mode(self.model, self.settings), freed_memory_kept():
            try:
                self._resume()
                first = self.step
                self._check_same()
                self._train()
                self._check_same()
                if self.checkpoints is not None and self.step > first:
                    self._save(self.checkpoints, is_last=True)
            finally:
                if self._products is not None:
                    self._products.remove()
                if self.rounded is not None:
                    self.rounded.end()
        if self.masks is not None:
            self.masks.finalize()
        load_tensors(self.model, self._best.tensors)
        return self.step

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return next(self.model.parameters()).device

    @property
    def total_steps(self) -> int:
        """Steps of this phase."""
        return self.curve.total_steps

    def _train(self) -> None:
        batches = training_batches(self.examples.lengths, self.settings.batch_size, self.seed)
        density = 1.0
        self._evaluate_if_due()  # the last run may have been stopped during the evaluation
        for indices in itertools.islice(batches, self.step, self.total_steps):
            if self._patience_exhausted:
                return
            if self.evaluation is not None:
                self.evaluation.check()
            loss = self.train_step(indices)
            if self.step == 1 or self.step % self._steps_between_syncs == 0 or self.step == self.total_steps:
                self._check_finite()
                self._loss, density = loss.item(), self._current_density
                self.curve.add(self.step, self._loss, density)
            self.callback.on_step(Progress(self.curve.phase, self.step, self.total_steps, density, self._loss))
            with suppress(Stopped):  # a checkpoint is written first
                self._evaluate_if_due()
            due = self.checkpoints is not None and self.checkpoints.due
            stop, due = self.group.of_first(stop_requested(), due)
            if self.checkpoints is not None and (stop or due):
                self._check_same()
                self._save(self.checkpoints)
            elif self.step % STEPS_BETWEEN_CHECKS == 0:
                self._check_same()
            if stop:
                raise Stopped

    def train_step(self, indices: Indices) -> Tensor:
        """One step on the examples with these indices: gradients, update, new masks. Returns the loss."""
        self.optimizer.allocate()
        self.before_step(self.step)
        self._round_if_final()
        if self._products is not None and self._products.chosen is None and self.masks is not None and self.masks.final:
            # Measured on one rank: others may measure differently.
            faster = self._products.faster() if self.group.rank == 0 else []
            self._note(self._products.use(self.group.broadcast(faster)))
        if self.settings.dropout and self.group.rank:
            torch.manual_seed(int(np.random.SeedSequence((self.seed, self.step, self.group.rank)).generate_state(1)[0]))
        loss = self._gradients.compute(indices, self.step)
        if self.masks is not None:
            self.masks.backward()
        density, decay = 1.0, None
        if self.masks is not None:
            density = self.masks.scheduled_density
            decay = self.masks.method.schedule.lr_decay(self.step, self.total_steps)
        self.optimizer.update(loss, self.settings.lr_multiplier(self.step, self.total_steps, decay), density)
        self.step += 1
        if self.masks is not None:
            if (samples := self.masks.gradient_samples(self.step)) > 0:
                self._sample_gradients(self.masks, samples)
                self.callback.on_phase("scoring")
                self.masks.update(self.step, partial(self.callback.on_examples, "scoring"))
                self.callback.on_phase(self.curve.phase)
            else:
                self.masks.update(self.step)
        return loss

    def _sample_gradients(self, masks: Masks, count: int) -> None:
        """Hands the method gradients of small batches of the masked model. At most one for each batch of the run.

        They are those of the loss on the labels: the loss with a teacher has none where the model is the teacher's own.
        The examples are those of the next steps, or of the last ones.
        """
        size, total = masks.method.gradient_batch_size, self.total_steps
        batches = training_batches(self.examples.lengths, self.settings.batch_size, self.seed)
        needed = min(total, math.ceil(count * size / self.settings.batch_size))
        first = min(self.step, total - needed)
        together = np.concatenate([*itertools.islice(batches, first, first + needed)])
        self._check_finite()  # the method could not use the gradients of weights that are not
        self.model.eval()
        self.callback.on_phase("sampling")
        read = min(count * size, len(together))
        gradients = replace(self._gradients, distillation=None, forward=self.model)  # compiled layers call no hooks
        with masks.sampling(self.group) as moments:
            for index, start in enumerate(range(0, read, size)):
                gradients.compute(together[start : start + size], self.step, index, moments=moments)
                masks.add_sample()
                self.callback.on_examples("sampling", min(start + size, read), read)
        self.model.zero_grad()
        self.model.train()

    @cached_property
    def _gradients(self) -> BatchGradients:
        return BatchGradients(
            model=self.model,
            forward=torch.compile(self.model, dynamic=True) if self.settings.compile else self.model,
            examples=self.examples,
            loss=self.loss,
            settings=self.settings,
            seed=self.seed,
            distillation=self.distillation,
            group=self.group,
        )

    @cached_property
    def _products(self) -> SparseProducts | None:
        """None where products are dense."""
        settings, cpu = self.settings, self.device.type == "cpu"
        if self.masks is None or settings.precision == "bf16" or settings.compile or not cpu or self.rounded:
            return None
        if settings.deterministic:  # times decide, and another run may measure others
            return None
        size = settings.batch_size / (settings.accumulation_steps * self.group.size)
        return SparseProducts(self.model, self.masks.matrices, size * float(self.examples.lengths.mean()))

    def _round_if_final(self) -> None:
        if self.rounded is not None and self._is_at_final_density:
            self.rounded.begin()
            # The compiler cannot trace the rounding. Compiling what lies between makes no step faster on a CPU.
            self._gradients = replace(self._gradients, forward=self.model)

    @property
    def _is_at_final_density(self) -> bool:
        return self.masks is None or self.step >= self.masks.method.schedule.pruning_end(self.total_steps)

    def _note(self, text: str) -> None:
        if self.notes is not None and text:
            self.notes.add(text)

    @cached_property
    def _steps_between_syncs(self) -> int:
        return 1 if self.device.type == "cpu" else _STEPS_BETWEEN_SYNCS

    @property
    def _current_density(self) -> float:
        return 1.0 if self.masks is None else self.masks.current_density

    def _evaluate_if_due(self) -> None:
        every = self.settings.evaluate_every
        if every and self.step > self._evaluated and (self.step % every == 0 or self.step == self.total_steps):
            self._evaluate()
            self._evaluated = self.step

    def _evaluate(self) -> None:
        if self.evaluation is None:
            raise ValueError("evaluation must be given with evaluate_every, got None")
        self._round_if_final()
        with nullcontext() if self.masks is None else self.masks.finalized():
            value = self.group.broadcast(self.evaluation.measure(self.step)[self.evaluation.metric])
            self.model.train()
            if not self._is_at_final_density:
                return
            improved = self._best.update(value, higher_is_better=self.evaluation.higher_is_better)
            if improved and self.settings.keep_best:
                self._best.tensors = {name: tensor.cpu().clone() for name, tensor in tensors_of(self.model).items()}
                self.evaluation.on_best()

    @property
    def _patience_exhausted(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self._best.evaluations_since >= patience

    def _check_same(self) -> None:
        if self.group.size > 1:
            check_same_tensors(self.group, dict(_named(self._tensors())), self.step)

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """The model with its masks."""
        model = tensors_of(self.model)
        if self.masks is None:
            return {"model": model}
        # W is among the tensors of the masks, which are not copied: W' is written beside it.
        model = {name: x for name, x in model.items() if name not in self.masks.weight_names}
        return {"model": model, "masks": self.masks.state()}

    def _save(self, checkpoints: Checkpoints, *, is_last: bool = False) -> None:
        """Saves a checkpoint; the last one in a thread, while the run goes on."""
        self._check_finite()  # on a GPU not every step is checked, and a good checkpoint must not be overwritten
        tensors = self._tensors()
        if is_last:  # what follows changes the model and its gates, but no weights behind the masks
            tensors = {part: _with_copies(part, values) for part, values in tensors.items()}
        parts = tensors | {
            "best": self._best.tensors,
            "optimizer": self.optimizer.state(),
            "random": random_states(self.device),
        }
        facts = {
            "step": self.step,
            "density": self._current_density,
            "loss": self._loss,
            "best": self._best.value,
            "since_best": self._best.evaluations_since,
            "evaluated": self._evaluated,
            "curve": self.curve.state(),
            "sparse": None if self._products is None else self._products.chosen,
        }

        def saved(error: OSError | None) -> None:
            if error is None:
                self.callback.on_checkpoint(self.steps_before + self.step)
            else:  # a full disk must not end the run
                text = f"step {self.step}: the checkpoint cannot be written ({error})"
                warnings.warn(text, RuntimeWarning, stacklevel=2)

        checkpoint = self.curve.phase, dict(_named(parts)), facts
        if is_last:
            checkpoints.save_beside(*checkpoint, saved)
            return
        try:
            checkpoints.save(*checkpoint)
        except OSError as error:
            saved(error)
        else:
            saved(None)

    def _resume(self) -> None:
        found = None if self.checkpoints is None else self.checkpoints.load(self.curve.phase)
        if found is None:
            return
        tensors, facts = found
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}, "masks": {}, "random": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = tensor
        load_tensors(self.model, parts["model"])
        self.optimizer.restore(parts["optimizer"])
        self._best = BestModel(facts["best"], facts["since_best"], parts["best"])
        self.step, self._loss, self._evaluated = facts["step"], facts["loss"], facts["evaluated"]
        self.curve.restore(facts["curve"])
        if self.masks is not None:
            self.masks.restore(parts["masks"], self.step, facts["density"])
        if self._products is not None and facts["sparse"] is not None:
            self._note(self._products.use(facts["sparse"]))  # the same, so that the rest is computed alike
        set_random_states(parts["random"], self.device)
        self.callback.on_resume(self.curve.phase, self.step)

    def _check_finite(self) -> None:
        if not self.optimizer.finite:
            raise CompressionError(
                Reason.NAN_LOSS,
                f"the loss or its gradient is no longer finite at step {self.step} of {self.total_steps} "
                f"({self.curve.phase}); lower the learning rate (now {self.settings.learning_rate:g}), its growth "
                f"({self.settings.lr_density_exponent:g}) or that of the scores",
            )


def _with_copies(part: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of a part of a checkpoint; those that are masked and rounded after training are copied."""
    changes = part == "model"
    return {name: value.clone() if changes or name.startswith("mask.") else value for name, value in values.items()}


def _named(parts: Mapping[str, Mapping[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    for part, values in parts.items():
        for name, value in values.items():
            yield f"{part}.{name}", value
