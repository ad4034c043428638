"""Selection of blocks of attention matrices, together with whole feed-forward units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mvprune.artifact.structures import Structures
from mvprune.spec.structures import problem_with_block_size
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.selection import materialize
from mvprune_core.pruning.selectors import Ranking
from mvprune_core.pruning.structures import Group, WholeStructures, write_masks


class BlocksAndUnits(WholeStructures):
    """The most important square blocks of the attention matrices stay, and the most important feed-forward units.

    This is the hybrid selection of block movement pruning (Lagunas et al. 2021, https://arxiv.org/abs/2109.04838,
    section 3.1): blocks in attention, and in the feed-forward layers rows of the first and columns of the second matrix
    together. There, every block and every unit has one learned score. Here its importance is the mean over its weights,
    as in `WholeStructures`, so that every method that ranks weights can choose among blocks.

    A head without a block in its value or output matrix computes nothing that depends on the input, and is removed at
    the end. So it has no blocks: those of a head come after the best block of each of these two matrices, and exactly
    as many blocks as the density asks for stay in heads that compute something. Every attention keeps at least one
    head.

    "Filled", in the code of that paper (https://github.com/huggingface/nn_pruning), are models whose remaining heads
    and units have all their weights again and are trained further. There, these weights start near zero, in a run of
    its own. Here they have the values that they had when they were pruned, and the run goes on.

    Args:
        model: the model, before anything is removed.
        structures: its heads and units, each kind of one size.
        block_size: rows and columns of a block; divides the size of a head.
        fills: whether all weights of the heads and units that stay come back when pruning has ended.
    """

    def __init__(
        self, model: nn.Module, structures: Sequence[Structures], block_size: int, *, fills: bool = False
    ) -> None:
        super().__init__(model, structures)
        self.fills = fills
        self._heads = _Blocks(model, [each for each in structures if each.kind == "heads"], block_size)

    def fill(self, matrices: Sequence[Matrix]) -> float:
        layers = {matrix.name.removesuffix(".weight"): matrix for matrix in matrices}
        for each in (*self._heads.structures, *self._units.structures):
            columns = layers[each.output].mask.any(0)
            write_masks(each, columns.view(-1, each.size).any(1), layers)
        kept = torch.stack([matrix.mask.sum() for matrix in matrices]).sum()
        return int(kept) / sum(matrix.weights for matrix in matrices)


class _Blocks(Group):
    """The blocks of all heads. Those of a head are ordered by matrix (query, key, value, output), rows and columns."""

    def __init__(self, model: nn.Module, structures: Sequence[Structures], block_size: int) -> None:
        super().__init__(model, structures)
        self._side = block_size
        self._heads = self.counts  # of each attention
        self._all_heads = self.count
        self.size = block_size**2
        self.counts = [
            sum(model.get_parameter(f"{layer}.weight").numel() for layer in each.layers) // self.size
            for each in structures
        ]
        self.count = sum(self.counts)
        # A head needs a block of its values and one of its outputs.
        self.numbers = np.arange(2 * len(structures), self.count + 1)

    def most_structures(self, numbers: Tensor) -> Tensor:
        return (numbers // 2).clamp_max(self._all_heads)

    def scores(self, layers: Mapping[str, tuple[Matrix, int]], ranking: Ranking) -> Tensor:
        return torch.cat([self._scores(each, layers, ranking) for each in self.structures])

    def write(self, places: Tensor, number: Tensor, layers: Mapping[str, tuple[Matrix, int]]) -> None:
        kept = torch.split(self._kept(places, number).view(-1), self.counts)
        for each, some, heads in zip(self.structures, kept, self._heads, strict=True):
            of_matrices = some.view(heads, 4, each.size // self._side, -1).transpose(0, 1)
            for layer, blocks in zip(each.layers, of_matrices, strict=True):
                of_heads = blocks.flatten(0, 1)
                rows = of_heads.t() if layer == each.output else of_heads
                mask = layers[layer][0].mask.view(len(rows), self._side, -1, self._side)
                mask.copy_(rows[:, None, :, None].expand_as(mask))

    def _kept(self, places: Tensor, number: Tensor) -> Tensor:
        """Which blocks stay: exactly `number`, none of them in a head without values or outputs.

        Args:
            places: in the order of importance; first come the two blocks that the best head of each attention needs.
            number: at least two for each attention.

        Returns:
            Shape (heads, 4, blocks of one matrix), bool.
        """
        rank = _ranks(places).view(self._all_heads, 4, -1)
        best, where = rank[:, 2:].min(2)
        needed = torch.zeros_like(rank, dtype=torch.bool)
        needed[:, 2:] = torch.zeros_like(needed[:, 2:]).scatter_(2, where.unsqueeze(2), True)
        # A head opens at the worse of the two blocks that it needs. Its better blocks come next.
        opens = best.amax(1).view(-1, 1, 1)
        rank = _ranks(torch.maximum(rank, opens) * (2 * self.count) + torch.where(needed, rank - self.count, rank))
        is_open = ((needed & (rank < number)).flatten(1).sum(1) == 2).view(-1, 1, 1)
        # If the number ends between the two, the next blocks of open heads stay in place of the first of them.
        rank = _ranks(torch.where(is_open, rank, rank + self.count))
        # If these have no more, it stays with the other one, in place of the last block of an open head.
        is_open |= (needed & (rank < number)).flatten(1).any(1).view(-1, 1, 1)
        return _ranks(torch.where(needed & is_open, rank - self.count, rank)) < number

    def _scores(self, each: Structures, layers: Mapping[str, tuple[Matrix, int]], ranking: Ranking) -> Tensor:
        """The importance of the blocks of one attention: ∞ for those that make the best head compute something."""

        def sums(layer: str) -> Tensor:
            """By head, row and column of blocks."""
            values = materialize(ranking.importance(*layers[layer]))
            rows = values.view(len(values), -1, self._side).sum(2)
            blocks = rows.view(-1, self._side, rows.shape[1]).sum(1)
            of_heads = blocks.t() if layer == each.output else blocks
            return of_heads.reshape(-1, each.size // self._side * of_heads.shape[1])

        found = ranking.of_groups(torch.stack([sums(layer) for layer in each.layers], 1).view(-1), self.size)
        by_matrix = found.view(layers[each.output][0].weight.shape[1] // each.size, 4, -1)
        best, where = by_matrix[:, 2:].max(2)
        head = best.sum(1).argmax()
        needed = torch.zeros_like(by_matrix, dtype=torch.bool)
        columns = torch.zeros_like(by_matrix[:, 2:], dtype=torch.bool).scatter_(2, where.unsqueeze(2), True)
        is_best = torch.arange(len(by_matrix), device=found.device) == head
        needed[:, 2:] = columns & is_best.view(-1, 1, 1)
        return by_matrix.masked_fill(needed, math.inf).view(-1)


def _ranks(order: Tensor) -> Tensor:
    """The place of each element among all of them, in the same shape. The elements differ."""
    return order.reshape(-1).argsort().argsort().view(order.shape)


def check_block_size(block_size: int, structures: Sequence[Structures]) -> None:
    """Checks that blocks fill the part of each head in the matrices.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, for the first attention in which they do not.
    """
    for each in structures:
        if each.kind == "heads" and (problem := problem_with_block_size(block_size, each.size, each.block)):
            raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"structure_block_size {problem}")
