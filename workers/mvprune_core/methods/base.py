"""The interface of a pruning method: how weights are scored and how the masks follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from mvprune.spec.kept import kept_count
from mvprune.spec.parameter import MethodFacts
from mvprune.spec.rules import methods_with, value_problems
from mvprune_core.base.options import given_fields, refuse
from mvprune_core.pruning.elementwise import SigmoidPenalty
from mvprune_core.pruning.matrices import Gates, Matrix
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.selection import Importance, materialize
from mvprune_core.pruning.selectors import WEIGHTS, Ranking, Selection, Selector

__all__ = ["Gated", "Matrix", "Method", "PruningStep", "Selection", "TopV", "generator_of"]


@dataclass(frozen=True)
class PruningStep:
    """The position of a run in its schedule.

    Attributes:
        number: optimizer updates done so far.
        total_steps: optimizer updates of the whole run.
        density: fraction of the weights to keep at the end of the run.
        seed: seed of the run.
        current_density: fraction of the weights that the current masks keep.
        selector: which weights stay at a density.
        report: to be called with the matrices done and all of them, by a method that takes long for each.
        start_density: fraction of the weights that the run starts with; below 1 if the model was pruned before.
    """

    number: int
    total_steps: int
    density: float
    seed: int
    current_density: float | Tensor = 1.0
    selector: Selector = WEIGHTS
    report: Callable[[int, int], None] = lambda done, total: None
    start_density: float = 1.0

    def scheduled_density(self, schedule: Schedule) -> float:
        """The density that `schedule` gives at this step, or the nearest one that the selector can reach; at most
        `start_density`."""
        wanted = self.selector.nearest(schedule.density_at(self.number, self.total_steps, self.density))
        return min(wanted, self.start_density)


class Method(ABC):
    """How weights are scored and how the masks follow from the scores.

    A subclass is a frozen dataclass of the method's options, with a field `schedule`. It holds no state of a run.
    """

    name: ClassVar[str]
    learned: ClassVar[bool] = False  # whether the scores are parameters, trained together with the weights
    ranks_weights: ClassVar[bool] = False  # whether any `Selector` can choose among the weights, by their importance
    takes_blocks: ClassVar[bool] = False  # whether it keeps and drops `Selector.block` weights together, though not so
    takes_start: ClassVar[bool] = False  # whether it can go on from a model that was pruned before
    is_gated: ClassVar[bool] = False
    needs_dense_steps: ClassVar[bool] = False  # whether it needs gradients of the dense model before it prunes
    prunes_trained: ClassVar[bool] = False  # whether it is meant for models that are fine-tuned for the task
    freezes_weights: ClassVar[bool] = False  # whether the body of the model is not trained, only scores and head
    buffer_names: ClassVar[tuple[str, ...]] = ()  # of `Matrix.buffers`, which start at 0
    gradient_batch_size: int = 16  # examples of a sampled gradient

    schedule: Schedule
    score_learning_rate: float | None = None  # AdamW, no weight decay; for learned scores

    def __post_init__(self) -> None:
        """Raises ValueError for an option of the contract that is out of range."""
        given = given_fields(self)
        refuse(value_problems({name: value for name, value in given.items() if self.name in methods_with(name)}))

    @property
    def facts(self) -> MethodFacts:
        """Facts that rules of a run depend on."""
        return MethodFacts(
            name=self.name,
            ranks_weights=self.ranks_weights,
            takes_blocks=self.takes_blocks,
            takes_start=self.takes_start,
            is_gated=self.is_gated,
            freezes_weights=self.freezes_weights,
            needs_dense_steps=self.needs_dense_steps,
            shape=self.schedule.shape,
        )

    def for_run(self, total_steps: int) -> Self:
        """The method with the defaults for a run of `total_steps` steps. Applied once, before training.

        Raises:
            RunTooShort: the run has too few steps for its options.
        """
        return self

    def kept(self, sizes: Sequence[int], density: float) -> int:
        """Number of weights to keep in matrices of these `sizes` (weights each) at `density`."""
        return kept_count(sum(sizes), density)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        """The score of every entry of `weight`: same shape, float32; the largest are kept.

        If scores are learned, this is called once and returns their initial values. Otherwise it is called at every
        selection, unless the method has an `importance` of its own.

        Args:
            weight: W, on any device.
            generator: a random generator on the same device, in the same state for the same matrix of a run.
        """

        raise NotImplementedError(f"{type(self).__name__} must define scores, importance or update_masks")

    @abstractmethod
    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        """Writes the mask of every matrix for the training steps after `step`.

        At most steps it must not synchronize with the device, which would leave the device idle.

        Args:
            matrices: the pruned matrices; if the method learns no scores, W' is as the last call left it.
            step: the position in the schedule.
            control: the method's state between steps: tensors of one value; empty at first.

        Returns:
            The fraction of the weights that the masks keep. At 1.0, masks need not be written.
        """

    def observe(self, matrix: Matrix, grad: Tensor, step: PruningStep) -> None:  # noqa: B027
        """Reads a training step's gradient ∂L/∂W', in which masked weights have theirs, into the buffers.

        Args:
            matrix: the matrix; W' is that of the step.
            grad: ∂L/∂W'; must not be changed.
            step: the position in the schedule before the step.
        """

    def mask_is_final(self, step: PruningStep) -> bool:
        """Whether the masks that `update_masks` wrote for `step` stay, and gradients of masked weights are not used."""
        return False

    def gradient_samples(self, step: PruningStep) -> int:
        """How many gradients are sampled before the masks are updated for `step`; 0 for most methods and steps."""
        return 0

    def add_sample(self, matrices: Sequence[Matrix], step: PruningStep) -> None:  # noqa: B027
        """Reads a sampled gradient of the masked model, without dropout, from the W' into `Matrix.samples`."""

    @property
    def samples_inputs(self) -> bool:
        """Whether the inputs of the layers are sampled beside the gradients, see `pruning.reconstruction`."""
        return False

    def notes(self, sizes: Sequence[int], examples: int, block: int) -> Sequence[str]:
        """Notes on a run for its user, as sentences.

        Args:
            sizes: weights of each matrix.
            examples: how many examples the run reads, repeated ones too.
            block: weights that are kept or dropped together.
        """
        return ()

    def penalty_on_scores(
        self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]
    ) -> SigmoidPenalty | None:
        """The penalty whose gradient is added to that of the scores after `step`; None: there is none.

        Args:
            gates: what has scores: the matrices, or the gates that their weights share.
            step: the position in the schedule.
            control: the method's state between steps.
        """
        return None


class Gated(Method):
    """A method whose masks are differentiable gates in [0, 1]. Other methods use the straight-through estimator.

    The gates are those of the matrices, or, if the run's `Selector` has such, gates that several weights share.
    """

    is_gated: ClassVar[bool] = True

    @abstractmethod
    def update_masks(self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        """Writes `Gates.mask` for the training steps after `step`. See `Method.update_masks`."""

    @abstractmethod
    def mask_grad(self, mask: Tensor) -> Tensor:
        """∂M/∂S, in the shape of `mask`."""

    @abstractmethod
    def finalize_masks(self, gates: Sequence[Gates], control: dict[str, Tensor]) -> None:
        """Writes `Gates.mask` for evaluation and for the artifact, in place of the training masks."""


class TopV(Method):
    """Keeps the ⌊v · n⌋ weights with the largest scores. The density v follows the schedule.

    Attributes:
        selection: "local": n is the size of each matrix; "global": n is the size of all matrices together.
        fixed: the scores never change, so each density has one mask.
    """

    fixed: ClassVar[bool] = False
    ranks_weights: ClassVar[bool] = True

    selection: Selection | None

    def kept(self, sizes: Sequence[int], density: float) -> int:
        if self.selection == "global":
            return super().kept(sizes, density)
        return sum(kept_count(size, density) for size in sizes)

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        density = step.scheduled_density(self.schedule)
        if density == 1:
            return density
        since_end, fills = step.number - self.schedule.pruning_end(step.total_steps), step.selector.fills
        if fills and since_end > 0:
            self._keep(matrices)
            return step.current_density
        if self._keeps_masks(step) and density == step.current_density:
            self._keep(matrices)
        else:
            importance = partial(self.importance, step=step)
            of_blocks = partial(self.importance_of_blocks, step=step)
            selection = self.selection or "local"
            ranking = Ranking(importance, self.importance_of_groups, of_blocks, selection, step.seed)
            step.selector.select(matrices, ranking, density)
        return step.selector.fill(matrices) if fills and since_end == 0 else density

    def mask_is_final(self, step: PruningStep) -> bool:
        stays = self._keeps_masks(step) or step.selector.fills
        return stays and step.number >= self.schedule.pruning_end(step.total_steps)

    def _keeps_masks(self, step: PruningStep) -> bool:
        """Whether the masks stay as they are while the density does."""
        return self.fixed or step.start_density < 1 or (self.schedule.shape == "events" and not self.learned)

    def _keep(self, matrices: Sequence[Matrix]) -> None:
        """Writes the masks as they are."""
        for matrix in matrices:
            matrix.mask.copy_(matrix.kept)

    def importance(self, matrix: Matrix, index: int, step: PruningStep) -> Importance:
        """The importance of the index-th matrix' weights at this step, in its shape. By default the scores."""
        if matrix.scores is not None:
            return matrix.scores
        weight = matrix.weight.detach()
        return self.scores(weight, generator_of(step.seed, index, device=weight.device))

    def importance_of_blocks(self, matrix: Matrix, index: int, size: int, step: PruningStep) -> Importance:
        """The importance of blocks of weights: by default `importance_of_groups`.

        Args:
            matrix: the index-th matrix.
            index: its place among the matrices.
            size: consecutive inputs of an output in a block.
            step: the position in the schedule.

        Returns:
            shape (blocks,), in the order of the outputs, then of the inputs; of blocks of one as `importance`.
        """
        if size == 1:
            return self.importance(matrix, index, step)
        values = matrix.by_block(materialize(self.importance(matrix, index, step)), size)
        return self.importance_of_groups(values.sum(1), size)

    def importance_of_groups(self, sums: Tensor, size: int) -> Tensor:
        """The importance of groups of weights, such as attention heads, shape (groups,). By default the mean.

        Args:
            sums: the sum of the importance over the weights of each group.
            size: weights of a group.
        """
        return sums / size


def generator_of(seed: int, *path: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator that depends only on `seed` and `path`."""
    words = np.random.SeedSequence((seed, *path)).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(words[0] >> np.uint64(1)))
