"""Selection of weights, or of blocks of them, inside the heads and units, or the layers, that stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mvprune.artifact.structures import Structures
from mvprune.spec.kept import kept_count
from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.selection import materialize
from mvprune_core.pruning.selectors import Ranking, Selector, select_blocks


class SparseStructures(Selector):
    """The most important structures (heads and units, or layers) stay, and inside them the ⌊v · n⌋ most important
    weights, or blocks of weights, of all n.

    At the density v, the structures that stay have the fraction v^x of the weights, with x = ln s / ln d for the final
    densities d of the weights and s of the structures. So v^x falls from 1 to s while v falls from 1 to d.

    Of every structure that stays, the most important weight, or block, of its output matrix is kept. Otherwise one
    without any would be removed, and the density with it. So d · n is at least the number of the structures that stay:
    see `problem`.

    Args:
        whole: which structures stay.
        structures: those that may be removed.
        density: d, below s.
        structure_density: s, in (0, 1].
        block: weights of a block, which fill the structures; 1: each weight is for itself.
    """

    def __init__(
        self,
        whole: Selector,
        structures: Sequence[Structures],
        density: float,
        structure_density: float,
        block: int = 1,
    ) -> None:
        self._whole = whole
        self.block = block
        self._densities = density, structure_density
        self._exponent = math.log(structure_density) / math.log(density)
        self._outputs = {f"{each.output}.weight": each.size for each in structures}

    def nearest(self, density: float) -> float:
        return min(density, self.density_of_structures(density))

    def most_structures(self, density: float) -> int:
        return self._whole.most_structures(self.density_of_structures(density))

    def problem(self, weights: int) -> str:
        """What is wrong with the density if it keeps fewer weights than structures may stay; "" otherwise.

        Args:
            weights: of all matrices together.
        """
        density, structure_density = self._densities
        structures, count = self.most_structures(density), weights // self.block
        if kept_count(count, density) >= structures:
            return ""
        unit = 10.0 ** (math.floor(math.log10(structures / count)) - 1)  # rounded up to two digits
        least = math.ceil(structures / count / unit) * unit
        one = "weight" if self.block == 1 else "block"
        return (
            f"density must keep a {one} of each of the up to {structures:,} structures that stay at structure_density "
            f"{structure_density:g}, got {density:g}, which keeps {kept_count(count, density):,} of {count:,} "
            f"{one}s; take at least {least:.2g}, or a lower structure_density"
        )

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        self._whole.select(matrices, ranking, self.density_of_structures(density))
        size = self.block
        importances = [
            self._inside(matrix, materialize(ranking.of_blocks(matrix, index, size)))
            for index, matrix in enumerate(matrices)
        ]
        count = kept_count(sum(matrix.weights for matrix in matrices) // size, density)
        select_blocks(matrices, importances, count, size, ranking.seed)

    def density_of_structures(self, density: float) -> float:
        """The fraction of the weights whose structures stay at this density of the weights."""
        return self._whole.nearest(density**self._exponent)

    def _inside(self, matrix: Matrix, importance: Tensor) -> Tensor:
        """The importance of the blocks inside what stays, −∞ outside, ∞ for those that are kept in any case."""
        stays = matrix.mask if self.block == 1 else matrix.by_block(matrix.mask, self.block)[:, 0]
        inside = importance.masked_fill(~stays, -math.inf)
        if matrix.name not in self._outputs:
            return inside
        # One row for each structure, with all blocks of its columns.
        blocks = inside.view(len(matrix.weight), -1)
        rows = blocks.t().reshape(-1, self._outputs[matrix.name] // self.block * len(blocks))
        best = rows.argmax(1, keepdim=True)
        rows.scatter_(1, best, torch.where(rows.gather(1, best) > -math.inf, math.inf, -math.inf))
        return rows.view(blocks.shape[1], -1).t().contiguous().view(inside.shape)
