"""Sparse products in training: matrices whose zeros no longer change, in fp32 on the CPU, where that is faster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mvprune.runtime import kernel
from mvprune.runtime.training import FixedZeros, TrainingChoices
from mvprune_core.pruning.matrices import Matrix

log = logging.getLogger(__name__)

LEAST_WEIGHTS = 1 << 16
"""Smaller matrices stay dense: the time of their products is mostly that of calls, and noise would decide."""
_MOST_ROWS = 1024  # that are measured: with more of them both rivals take proportionally longer


class SparseProducts:
    """Replaces the `forward` of layers by one that computes from the non-zeros, with the same gradients.

    They read only the kept weights, so W is never masked. It and its gradient stay dense tensors, so that masks,
    optimizer and checkpoints know nothing of it.

    Attributes:
        chosen: names of the weights that it computes; None before `use`.

    Args:
        model: the masked model, in fp32 on the CPU.
        matrices: its pruned matrices.
        rows: tokens that a batch is expected to have.
    """

    def __init__(self, model: nn.Module, matrices: Sequence[Matrix], rows: float) -> None:
        self._model, self._matrices = model, matrices
        self._large = [matrix for matrix in matrices if matrix.weight.numel() >= LEAST_WEIGHTS]
        self._rows = min(_MOST_ROWS, 1 << max(0, round(rows) - 1).bit_length())  # few sizes are measured
        self._replaced: list[Any] = []
        self.chosen: tuple[str, ...] | None = None

    def faster(self) -> list[str]:
        """Names of the weights that are faster so on this machine; measures what has not been measured before.

        To be called once the masks are final.
        """
        choices = TrainingChoices(self._rows, torch.get_num_threads())
        return [matrix.name for matrix in self._large if choices.backend(*_shape_and_density(matrix)) == "kernel"]

    def use(self, names: Sequence[str]) -> str:
        """Replaces the layers with these weights: those that are `faster`, or those of a checkpoint.

        Returns which products are sparse, as a sentence; "" if no matrix is large enough.
        """
        self.chosen = tuple(names)
        if not self._large:
            return ""
        absent = kernel.load()
        if not absent:
            for matrix in self._matrices:
                if matrix.name in names:
                    self._replace(matrix)
        said = _in_words(len(names), len(self._matrices), absent)
        log.info("%s (%d rows, %d threads)", said, self._rows, torch.get_num_threads())
        return said

    def remove(self) -> None:
        """Restores the layers."""
        for layer in self._replaced:
            del layer.forward
        self._replaced.clear()

    def _replace(self, matrix: Matrix) -> None:
        layer = self._model.get_submodule(matrix.name.removesuffix(".weight"))
        layer.forward = partial(
            _forward, layer, matrix.weight, FixedZeros(matrix.kept, inputs_first=matrix.inputs_first)
        )
        self._replaced.append(layer)


def _forward(layer: Any, weight: Tensor, product: FixedZeros, x: Tensor) -> Tensor:
    return product(x, weight, layer.bias)


def _shape_and_density(matrix: Matrix) -> tuple[tuple[int, int], float]:
    first, second = matrix.weight.shape
    shape = (second, first) if matrix.inputs_first else (first, second)
    return shape, int(matrix.kept.count_nonzero()) / matrix.weight.numel()


def _in_words(used: int, count: int, absent: str) -> str:
    if absent:
        return f"training computed the products of all {count} pruned matrices densely: {absent}"
    if not used:
        return f"training computed the products of all {count} pruned matrices densely, which was measured to be faster"
    return (
        f"training computed the products of {used} of {count} pruned matrices from their non-zeros, which was measured "
        "to be faster"
    )
