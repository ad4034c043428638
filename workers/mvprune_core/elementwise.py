"""Elementwise operations on many matrices, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mvprune.runtime import kernel, passes
from mvprune.runtime.passes import Floats, Slope

_T = TypeVar("_T")
PIECE = 1 << 16  # values that a core processes at a time, so that they stay in its cache


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """out ← left ⊙ right, without gradients. `right` may be bool. All are contiguous and have one shape."""
    if out.device.type == "cpu" and out.dtype == torch.float32:
        # numpy multiplies by bool as fast as by float, twice as fast as torch.
        np.multiply(left.detach().numpy(), right.detach().numpy(), out=out.detach().numpy())
    else:
        torch.mul(left.detach(), right.detach(), out=out.detach())


@dataclass(frozen=True)
class SigmoidPenalty:
    """A penalty on the scores of several matrices: factor · mean over matrices of mean σ(S − shift).

    Attributes:
        factor: one value on the scores' device.
        shift: moves the penalty's steepest place away from 0.
        matrices: how many there are.
    """

    factor: Tensor
    shift: float
    matrices: int

    def of_each(self, scores: Tensor) -> Tensor:
        """The factor of σ′ of one score of a matrix."""
        return self.factor / (self.matrices * scores.numel())

    def add_to(self, grad: Tensor, scores: Tensor) -> None:
        """Adds the gradient of one matrix's scores to `grad`. Both are contiguous and have one shape."""
        each = self.of_each(scores)
        for some, part in in_pieces(scores.detach(), grad):
            opened = torch.sigmoid(some - self.shift if self.shift else some)
            part.add_(opened.mul_(1 - opened).mul_(each))


def share_gradient(
    grad: Tensor, weight: Tensor, masked: Tensor, scores: Tensor, penalty: SigmoidPenalty | None = None
) -> None:
    """With G in `grad` and W' in `masked`: masked ← G ⊙ W + the penalty's gradient, grad ← G ⊙ [W' ≠ 0].

    All are contiguous and have one shape. The native kernel makes one pass over memory.
    """
    tensors = [tensor.detach() for tensor in (grad, weight, masked, scores)]
    on_cpu = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
    if on_cpu and not kernel.load():
        grads, weights, products, levels = (tensor.numpy().reshape(-1) for tensor in tensors)
        slope = None if penalty is None else Slope(levels, float(penalty.of_each(scores)), penalty.shift)
        passes.share_gradient(grads, weights, products, slope)
        return
    if on_cpu:
        _share_in_pieces(*(tensor.numpy().reshape(-1) for tensor in tensors[:3]))
    else:
        kept = masked.detach() != 0
        torch.mul(grad, weight.detach(), out=masked.detach())
        grad.mul_(kept)
    if penalty is not None:
        penalty.add_to(masked.detach(), scores)


def _share_in_pieces(grad: Floats, weight: Floats, masked: Floats) -> None:
    for start in range(0, len(grad), PIECE):
        piece = slice(start, start + PIECE)
        grads, products = grad[piece], masked[piece]
        kept_piece = products != 0
        np.multiply(grads, weight[piece], out=products)
        np.multiply(grads, kept_piece, out=grads)


def in_pieces(left: Tensor, right: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Two contiguous tensors of one shape, flat: on the CPU in pieces that fit the cores' caches, else whole."""
    size = PIECE * torch.get_num_threads() if left.device.type == "cpu" else left.numel()
    yield from zip(torch.split(left.view(-1), size), torch.split(right.view(-1), size), strict=True)


def in_parallel(function: Callable[[int, _T], None], items: Sequence[_T]) -> None:
    """Calls `function(index, item)` for every item, in as many threads as torch uses.

    numpy uses one core, but releases the interpreter lock, so the matrices are divided among the cores.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) == 1:
        for index, item in enumerate(items):
            function(index, item)
        return
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(function, index, item) for index, item in enumerate(items)]:
            job.result()
