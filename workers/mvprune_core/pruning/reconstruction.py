"""What a layer computes, kept as well as possible with fewer weights: least squares on the inputs of the layer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from mvprune_core.base.group import Group
from mvprune_core.pruning.matrices import Matrix

INPUTS = "inputs"
"""The name in `Matrix.samples` of Σ x xᵀ over the inputs x of the layer, one for each token, shape (inputs, inputs)."""
_TOGETHER = 1024  # tokens; the rows of so many take no more memory than Σ x xᵀ of the widest layers
_BLOCK = 256  # columns
_DAMPING = 0.01  # of the mean of the diagonal, as in SparseGPT
_ITERATIONS = 30
_EXACT = 0.03  # of the first residual; a thirtieth of it takes three times as long, and the model loses the same


class InputMoments:
    """A context in which the inputs of layers are read, to be added to Σ x xᵀ of their matrices: those of some batches
    together, since a product over few tokens takes nearly as long as one over many.

    Args:
        layers: with the matrix of each; a matrix may have several layers.
        group: the ranks that share the batches.
    """

    def __init__(self, layers: Iterable[tuple[nn.Module, Matrix]], group: Group) -> None:
        self._layers, self._group = list(layers), group
        self._attended: Tensor | None = None
        self._part = self._tokens = 0
        # By matrix, for each part of the batches: so ranks that have a part each add up the same.
        self._rows: dict[str, dict[int, list[Tensor]]] = {}
        self._last: tuple[Tensor, Tensor] | None = None

    def __enter__(self) -> Self:
        self._hooks = [layer.register_forward_pre_hook(partial(self._read, matrix)) for layer, matrix in self._layers]
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()
        if kind is None:
            self._add()

    def begin_part(self, part: int, attended: Tensor | None) -> None:
        """Tells that a part of a batch is read next.

        Args:
            part: its number among those of the batch that this rank reads.
            attended: its attention mask, shape (examples, tokens): padding is not read. None: all is.
        """
        self._part, self._attended = part, attended

    def end_batch(self, tokens: int) -> None:
        """Tells that a batch is read, which has so many tokens on all ranks together."""
        self._last = None
        self._tokens += tokens
        if self._tokens >= _TOGETHER:
            self._add()

    def _read(self, matrix: Matrix, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled():  # the first of two passes over the same batch, see `BatchGradients`
            return
        (values,) = arguments
        if self._last is None or self._last[0] is not values:  # query, key and value read the same
            inputs = values.detach()
            if self._attended is not None and self._attended.shape == inputs.shape[:-1]:
                inputs = inputs[self._attended.bool()]
            self._last = values, inputs.reshape(-1, inputs.shape[-1])
        self._rows.setdefault(matrix.name, {}).setdefault(self._part, []).append(self._last[1])

    def _add(self) -> None:
        """Adds what was read since the last time, summed over the ranks, as the gradients are."""
        every = {matrix.name: matrix for _, matrix in self._layers}
        known: dict[tuple[int, ...], Tensor] = {}

        def moments(rows: list[Tensor]) -> Tensor:
            key = tuple(map(id, rows))
            if key not in known:
                with torch.autocast(rows[0].device.type, enabled=False):  # sums of squares do not fit into 8 bits
                    known[key] = _products(torch.cat(rows).float())
            return known[key]

        found = {}
        for name, matrix in every.items():
            parts = [moments(rows) for _, rows in sorted(self._rows.get(name, {}).items())]
            found[name] = sum(parts[1:], start=parts[0]) if parts else _zeros(matrix)
        self._rows.clear()
        self._last, self._tokens = None, 0
        if self._group.size > 1:
            found = {name: one.clone() for name, one in found.items()}  # query, key and value have one tensor
            self._group.sum_([*found.values()])
        for name, matrix in every.items():
            if INPUTS in matrix.samples:
                matrix.samples[INPUTS].add_(found[name])
            else:
                matrix.samples[INPUTS] = found[name].clone()


def _products(rows: Tensor) -> Tensor:
    """XᵀX, of which one half is computed, block by block, and the other one is its mirror image.

    Args:
        rows: X, shape (rows, width).
    """
    width = rows.shape[1]
    if width < 2 * _BLOCK:
        return rows.t() @ rows
    found = rows.new_empty((width, width))
    for start in range(0, width, _BLOCK):
        end = min(start + _BLOCK, width)
        strip = rows[:, start:end].t() @ rows[:, :end]
        found[start:end, :end] = strip
        found[:start, start:end] = strip[:, :start].t()
    return found


def _zeros(matrix: Matrix) -> Tensor:
    """The moments of a layer that did not compute: another rank may have read all examples of a batch."""
    inputs = matrix.weight.shape[0 if matrix.inputs_first else 1]
    return torch.zeros((inputs, inputs), device=matrix.weight.device)


def reconstruct(matrix: Matrix) -> None:
    """Changes the kept weights of a matrix so that the outputs of its layer stay as near as they can to what they are.

    For each output the kept weights ŵ minimize Σ (ŵᵀx − wᵀx)² over the sampled inputs x, where w are the weights before
    `matrix.mask` is applied: the reconstruction of a layer in SparseGPT (Frantar and Alistarh 2023,
    https://arxiv.org/abs/2301.00774), here solved for all outputs together, by conjugate gradients.

    A matrix whose inputs were not sampled, or that loses no weight, stays as it is.
    """
    if INPUTS not in matrix.samples or not (matrix.kept & ~matrix.mask).any():
        return
    weight, before = matrix.weight.detach(), matrix.masked.float()
    rows, mask = (values.t() if matrix.inputs_first else values for values in (before, matrix.mask))
    best = least_squares(rows, mask, matrix.samples[INPUTS])
    weight.copy_(torch.where(matrix.mask, best.t() if matrix.inputs_first else best, weight))


def least_squares(weight: Tensor, mask: Tensor, moments: Tensor) -> Tensor:
    """The Ŵ with zeros outside of the mask that minimizes tr((Ŵ − W) H (Ŵ − W)ᵀ), H = moments + λI.

    λ is 1 % of the mean of the diagonal. Each step of the conjugate gradients, with the diagonal of H as the
    preconditioner, comes nearer.

    Args:
        weight: W, shape (outputs, inputs), float32.
        mask: the same shape, bool.
        moments: Σ x xᵀ, shape (inputs, inputs), float32.

    Returns:
        shape (outputs, inputs).
    """
    least = torch.finfo(weight.dtype).tiny
    scale = moments.diagonal().mean().clamp_min(least)
    curvature = moments / scale
    curvature.diagonal().add_(_DAMPING)
    diagonal = curvature.diagonal()
    best = weight * mask
    residual = ((weight - best) @ curvature) * mask
    towards = direction = residual / diagonal
    product = (residual * towards).sum(1, keepdim=True)
    enough = product.sum() * _EXACT**2
    for _ in range(_ITERATIONS):
        if product.sum() <= enough:
            break
        change = (direction @ curvature) * mask
        length = product / (direction * change).sum(1, keepdim=True).clamp_min(least)
        best = best + length * direction
        residual = residual - length * change
        towards, before = residual / diagonal, product
        product = (residual * towards).sum(1, keepdim=True)
        direction = towards + product / before.clamp_min(least) * direction
    return best
