"""Which weights stay at a density: the most important ones, each for itself or in groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from mvprune.spec.kept import kept_count
from mvprune_core.pruning.elementwise import in_parallel
from mvprune_core.pruning.matrices import Gates, Matrix
from mvprune_core.pruning.selection import Importance, materialize, select_top, select_top_on_device

Selection = Literal["local", "global"]
MARGIN = 1e-4  # between a closed gate's score and the level, so that rounding opens no gate
OPEN = 0.1  # of the score of a gate that stays, above that of a closed one: it is 0.01, so no weight becomes 0 in fp16


@dataclass(frozen=True)
class Ranking:
    """How a method ranks weights at a step.

    Attributes:
        importance: what the weights of a matrix with an index are ranked by, in its shape; the larger, the sooner a
            weight is kept.
        of_groups: what groups of weights are ranked by: see `TopV.importance_of_groups`.
        of_blocks: what the blocks of a size of such a matrix are ranked by: see `TopV.importance_of_blocks`.
        selection: "local": weights compete in each matrix; "global": in all matrices together.
        seed: seed of the choice among equal values.
    """

    importance: Callable[[Matrix, int], Importance]
    of_groups: Callable[[Tensor, int], Tensor]
    of_blocks: Callable[[Matrix, int, int], Importance]
    selection: Selection
    seed: int


class Selector(ABC):
    """Chooses the weights that stay, by the importance that a method gives them. It holds no state of a run."""

    fills: bool = False
    """Whether `fill` is called once pruning has ended. The masks then stay as it writes them."""
    block: int = 1
    """Consecutive inputs of an output that are kept or dropped together."""

    def nearest(self, density: float) -> float:
        """The density nearest to `density` that the selector can reach."""
        return density

    def most_structures(self, density: float) -> int:
        """The largest number of structures that may stay at a density that `nearest` returned."""
        raise NotImplementedError(f"{type(self).__name__} selects no structures")

    @abstractmethod
    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        """Writes the masks.

        Args:
            matrices: the pruned matrices.
            ranking: which weights are kept first.
            density: fraction of the weights to keep, below 1; one that `nearest` returned.
        """

    def fill(self, matrices: Sequence[Matrix]) -> float:
        """Adds weights to the masks that `select` wrote. Returns their density; it may wait for the device."""
        raise NotImplementedError(f"{type(self).__name__} fills nothing")

    def shared_gates(self, matrices: Sequence[Matrix]) -> list[SharedGates]:
        """The gates of a `Gated` method that several weights share; none if each weight has its own.

        Args:
            matrices: the pruned matrices.
        """
        return []

    def separate(self, gates: Sequence[Gates], density: float, level: float, seed: int) -> Tensor:
        """Makes the gates that stay at a density those whose score is above a level. May change the scores.

        Args:
            gates: all gates, with scores.
            density: fraction of the weights to keep, below 1; one that `nearest` returned.
            level: a score that closes a gate.
            seed: seed of the choice among equal scores.

        Returns:
            What must be subtracted from the scores first, one value.
        """
        raise NotImplementedError(f"{type(self).__name__} selects no gates")


class SharedGates(ABC):
    """Gates that several weights share, one score each. See `Gates`.

    Attributes:
        name: distinguishes them from others of the model.
        scores: S, float32, shape (gates,); None until the method gives them.
        mask: the gates, float32 in [0, 1], shape (gates,).
        weights: how many weights they open.
    """

    def __init__(self, name: str, mask: Tensor, weights: int) -> None:
        self.name = name
        self.scores: nn.Parameter | None = None
        self.mask = mask
        self.weights = weights

    @property
    def penalty_weight(self) -> float:
        """The weights that they open: the penalty is the expected size of the model."""
        return float(self.weights)

    @abstractmethod
    def write_masks(self) -> None:
        """Writes the masks of the matrices."""

    @abstractmethod
    def collect_gradient(self, of_weights: Mapping[str, Tensor]) -> None:
        """Gives the scores their gradient, from that of each weight.

        Args:
            of_weights: ∂L/∂W' ⊙ W ⊙ ∂M/∂S, by the name of the matrix; without those that have no gradient.
        """


class BlockGates(SharedGates):
    """The gates of the blocks of a matrix.

    Args:
        matrix: of the model.
        size: weights of a block.
    """

    penalty_weight = 1.0  # as that of gates of single weights: the mean over matrices

    def __init__(self, matrix: Matrix, size: int) -> None:
        super().__init__(matrix.name, torch.ones(matrix.weights // size, device=matrix.weight.device), matrix.weights)
        self._matrix, self._size = matrix, size

    def write_masks(self) -> None:
        self._matrix.mask.copy_(self._matrix.of_blocks(self.mask, self._size))

    def collect_gradient(self, of_weights: Mapping[str, Tensor]) -> None:
        if self.scores is None:
            raise TypeError("gates have scores")
        if (found := of_weights.get(self.name)) is not None:
            self.scores.grad = self._matrix.by_block(found, self._size).sum(1)


class Weights(Selector):
    """The ⌊v · n⌋ most important of n weights, or of n blocks of weights.

    Args:
        block: weights of a block; 1: each for itself.
    """

    def __init__(self, block: int = 1) -> None:
        self.block = block

    def shared_gates(self, matrices: Sequence[Matrix]) -> list[SharedGates]:
        return [] if self.block == 1 else [BlockGates(matrix, self.block) for matrix in matrices]

    def separate(self, gates: Sequence[Gates], density: float, level: float, seed: int) -> Tensor:
        scores = [some.scores.detach() for some in gates if some.scores is not None]
        kept = [torch.empty_like(score, dtype=torch.bool) for score in scores]
        select_top(scores, kept_count(sum(score.numel() for score in scores), density), kept, seed)
        found = [torch.where(mask, -torch.inf, score).max() for score, mask in zip(scores, kept, strict=True)]
        dropped = torch.stack(found).max()
        for score, mask in zip(scores, kept, strict=True):  # few steps leave many equal: those that stay are raised
            equal = mask & (score <= dropped + MARGIN)
            score.copy_(torch.where(equal, dropped + MARGIN + OPEN, score))
        return dropped - level + MARGIN

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        size, seed = self.block, ranking.seed
        if ranking.selection == "global":
            count = kept_count(sum(matrix.weights // size for matrix in matrices), density)
            importances = [ranking.of_blocks(matrix, index, size) for index, matrix in enumerate(matrices)]
            select_blocks(matrices, importances, count, size, seed)
        elif matrices[0].weight.device.type == "cpu":

            def select_one(index: int, matrix: Matrix) -> None:
                count = kept_count(matrix.weights // size, density)
                select_blocks([matrix], [ranking.of_blocks(matrix, index, size)], count, size, seed + index)

            in_parallel(select_one, matrices)
        else:
            _select_on_device(matrices, ranking, density, size)


WEIGHTS = Weights()


def select_blocks(
    matrices: Sequence[Matrix], importances: Sequence[Importance], count: int, size: int, seed: int
) -> None:
    """Writes the masks that keep the `count` most important blocks, all matrices together.

    Args:
        matrices: the pruned matrices.
        importances: see `TopV.importance_of_blocks`.
        count: blocks to keep.
        size: weights of a block.
        seed: seed of the choice among equal values.
    """
    if size == 1:
        select_top(importances, count, [matrix.mask for matrix in matrices], seed)
        return
    kept = [matrix.mask.new_empty(matrix.weights // size) for matrix in matrices]
    select_top(importances, count, kept, seed)
    for matrix, mask in zip(matrices, kept, strict=True):
        matrix.mask.copy_(matrix.of_blocks(mask, size))


def _select_on_device(matrices: Sequence[Matrix], ranking: Ranking, density: float, size: int) -> None:
    """Selects in all matrices of one size at once: many small kernels would leave a device idle."""
    sizes: dict[int, list[tuple[int, Matrix]]] = {}
    for index, matrix in enumerate(matrices):
        sizes.setdefault(matrix.weights, []).append((index, matrix))
    for weights, group in sizes.items():
        importances = [ranking.of_blocks(matrix, index, size) for index, matrix in group]
        rows = torch.stack([materialize(importance).reshape(-1) for importance in importances])
        kept = select_top_on_device(rows, kept_count(weights // size, density), ranking.seed + weights)
        for (_, matrix), mask in zip(group, kept, strict=True):
            matrix.mask = matrix.of_blocks(mask, size).contiguous().view(matrix.weight.shape)
