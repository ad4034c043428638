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
_DAMPING = 0.01  # of the mean of the diagonal, as in SparseGPT
_ITERATIONS = 30
_EXACT = 0.03  # of the first residual; a thirtieth of it takes three times as long, and the model loses the same


class InputMoments:
    """A context in which the inputs of layers are read, to be added to Σ x xᵀ of their matrices after each batch.

    Args:
        layers: with the matrix of each; a matrix may have several layers.

    Attributes:
        attended: the attention mask of the next batch, shape (examples, tokens): padding is not read. None: all is.
    """

    def __init__(self, layers: Iterable[tuple[nn.Module, Matrix]]) -> None:
        self.attended: Tensor | None = None
        self._layers = list(layers)
        self._of_batch: dict[str, Tensor] = {}
        self._last: tuple[Tensor, Tensor] | None = None

    def __enter__(self) -> Self:
        self._hooks = [layer.register_forward_pre_hook(partial(self._read, matrix)) for layer, matrix in self._layers]
        return self

    def __exit__(self, *error: object) -> None:
        self._last = None
        for hook in self._hooks:
            hook.remove()

    def _read(self, matrix: Matrix, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled():  # the first of two passes over the same batch, see `BatchGradients`
            return
        (values,) = arguments
        if self._last is None or self._last[0] is not values:  # query, key and value read the same
            inputs = values.detach()
            if self.attended is not None and self.attended.shape == inputs.shape[:-1]:
                inputs = inputs[self.attended.bool()]
            inputs = inputs.reshape(-1, inputs.shape[-1]).float()
            with torch.autocast(inputs.device.type, enabled=False):  # sums of squares do not fit into 8 bits
                self._last = values, inputs.t() @ inputs
        found = self._of_batch.get(matrix.name)
        self._of_batch[matrix.name] = self._last[1] if found is None else found + self._last[1]

    def add(self, group: Group) -> None:
        """Adds what was read of a batch, summed over the ranks that share it, as its gradients are."""
        every = {matrix.name: matrix for _, matrix in self._layers}
        sums = [self._of_batch[name] if name in self._of_batch else _zeros(matrix) for name, matrix in every.items()]
        self._of_batch.clear()
        self._last = None
        if group.size > 1:
            sums = [found.clone() for found in sums]  # query, key and value have one tensor
            group.sum_(sums)
        for matrix, found in zip(every.values(), sums, strict=True):
            if INPUTS in matrix.samples:
                matrix.samples[INPUTS].add_(found)
            else:
                matrix.samples[INPUTS] = found.clone()


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
