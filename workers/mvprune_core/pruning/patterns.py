"""Selection in an N:M pattern, such as the 2:4 that sparse tensor cores compute with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.spec.kept import kept_count
from mvprune.spec.patterns import NOfM, Pattern
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.pruning.elementwise import in_parallel
from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.selection import materialize, select_top
from mvprune_core.pruning.selectors import Ranking, Selector


class InPattern(Selector):
    """Of every M consecutive weights of a row, the N most important ones stay (Mishra et al. 2021,
    https://arxiv.org/abs/2104.08378, section 3).

    A row has the weights of one output. While the density v falls from 1 to N/M, the N largest of each group are always
    kept, and of the other weights the ⌊v · n⌋ − N · n / M most important ones: weights leave one by one, and no group
    falls below N.
    """

    def __init__(self, pattern: NOfM) -> None:
        self._pattern = pattern

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        numbered = list(enumerate(matrices))
        together = [numbered] if ranking.selection == "global" else [[one] for one in numbered]

        def select(_: int, some: Sequence[tuple[int, Matrix]]) -> None:
            self._select(some, ranking, density)

        in_parallel(select, together)

    def _select(self, numbered: Sequence[tuple[int, Matrix]], ranking: Ranking, density: float) -> None:
        size = sum(matrix.weight.numel() for _, matrix in numbered)
        more = kept_count(size, density) - size // self._pattern.group * self._pattern.kept
        others = []
        for index, matrix in numbered:
            values = materialize(ranking.importance(matrix, index))
            rows = values.t().contiguous() if matrix.inputs_first else values
            largest = largest_of_groups(rows, self._pattern, ranking.seed + index)
            matrix.mask.copy_(largest.t() if matrix.inputs_first else largest)
            if more > 0:
                others.append(values.masked_fill(matrix.mask, -math.inf))
        if more > 0:
            found = [torch.empty_like(matrix.mask) for _, matrix in numbered]
            select_top(others, more, found, ranking.seed + numbered[0][0])
            for (_, matrix), mask in zip(numbered, found, strict=True):
                matrix.mask.logical_or_(mask)


def largest_of_groups(values: Tensor, pattern: NOfM, seed: int) -> Tensor:
    """Where the N largest of every M consecutive values of a row are. Exactly N are True in each group.

    Args:
        values: float32, shape (rows, columns), contiguous; M divides the columns.
        pattern: N and M.
        seed: seed of the choice among equal values, so that constant values do not keep whole columns.

    Returns:
        Bool, of the same shape.
    """
    groups = values.reshape(-1, pattern.group)
    keep = groups >= _smallest_kept(groups, pattern.kept)
    if values.device.type != "cpu":
        return _among_equals(groups, pattern.kept, seed).view(values.shape)
    tied = (keep.sum(1) > pattern.kept).nonzero().squeeze(1)
    if len(tied):
        keep[tied] = _among_equals(groups[tied], pattern.kept, seed)
    return keep.view(values.shape)


def check_pattern(pattern: Pattern, layers: Mapping[str, nn.Linear | Conv1D]) -> None:
    """Checks that the pattern's groups fill the rows of every layer.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, for the first layer in which they do not.
    """
    rows = {name: layer.weight.shape[0 if isinstance(layer, Conv1D) else 1] for name, layer in layers.items()}
    if problem := pattern.problem_with_rows(rows):
        raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"pattern {problem}")


def _smallest_kept(groups: Tensor, count: int) -> Tensor:
    """The `count`-th largest value of each row, shape (rows, 1).

    A sorting network over the columns: on a CPU four times as fast as torch's topk for rows of four.
    """
    columns = list(groups.t().contiguous().unbind(0))
    for place in range(count):
        for index in range(len(columns) - 1, place, -1):
            before, after = columns[index - 1], columns[index]
            columns[index - 1], columns[index] = torch.maximum(before, after), torch.minimum(before, after)
    return columns[count - 1].unsqueeze(1)


def _among_equals(groups: Tensor, count: int, seed: int) -> Tensor:
    """Where the `count` largest values of each row are; among equal values in a random order."""
    generator = torch.Generator(groups.device).manual_seed(seed)
    order = torch.rand(groups.shape, generator=generator, device=groups.device).argsort(1)
    threshold = _smallest_kept(groups, count)
    places = torch.where(groups > threshold, order + groups.shape[1], torch.where(groups == threshold, order, -1))
    return places >= _smallest_kept(places, count)
