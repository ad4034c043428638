"""Elementwise operations on many matrices, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from mvprune.runtime import kernel, passes
from mvprune.runtime.passes import Slope
from mvprune_core.pruning.matrices import Gates
from mvprune_core.pruning.packed_masks import unpack

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
class ScorePenalty:
    """A penalty on the scores of one matrix: each · Σ σ(S − shift).

    Attributes:
        scores: S, contiguous.
        each: one value on the scores' device.
        shift: moves the penalty's steepest place away from 0.
    """

    scores: Tensor
    each: Tensor
    shift: float

    def add_to(self, grad: Tensor) -> None:
        """Adds the gradient of the penalty to `grad`, contiguous and of the scores' shape."""
        for some, part in in_pieces(self.scores, grad):
            opened = torch.sigmoid(some - self.shift if self.shift else some)
            part.add_(opened.mul_(1 - opened).mul_(self.each))


@dataclass(frozen=True)
class SigmoidPenalty:
    """A penalty on the scores of several matrices or shared gates: factor · weighted mean of mean σ(S − shift).

    Attributes:
        factor: one value on the scores' device.
        shift: moves the penalty's steepest place away from 0.
        total: the sum of the weights of the mean.
    """

    factor: Tensor
    shift: float
    total: float

    @classmethod
    def over(cls, gates: Sequence[Gates], factor: Tensor, shift: float) -> Self:
        """The penalty on all scores of `gates`."""
        return cls(factor, shift, sum(some.penalty_weight for some in gates))

    def of(self, gates: Gates) -> ScorePenalty | None:
        """The part of some gates; None if they have no scores."""
        if gates.scores is None:
            return None
        each = self.factor / (self.total / gates.penalty_weight * gates.scores.numel())
        return ScorePenalty(gates.scores.detach(), each, self.shift)


def share_gradient(
    grad: Tensor, weight: Tensor, bits: Tensor, of_scores: Tensor, penalty: ScorePenalty | None = None
) -> None:
    """With G in `grad` and M as `bits`: of_scores ← G ⊙ W + the penalty's gradient, grad ← G ⊙ M.

    All but the bits are contiguous and have one shape. The native kernel makes one pass over memory.
    """
    tensors = [tensor.detach() for tensor in (grad, weight, of_scores)]
    on_cpu = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
    if on_cpu and not kernel.load():
        slope = None
        if penalty is not None:
            slope = Slope(penalty.scores.numpy().reshape(-1), float(penalty.each), penalty.shift)
        grads, weights, products = (tensor.numpy().reshape(-1) for tensor in tensors)
        passes.share_gradient(grads, weights, bits.numpy(), products, slope)
        return
    multiply(grad, weight, of_scores)
    multiply(grad, unpack(bits, grad.shape), grad)
    if penalty is not None:
        penalty.add_to(of_scores)


def in_pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Contiguous tensors of one shape, flat: on the CPU in pieces that fit the cores' caches, else whole."""
    first = tensors[0]
    size = PIECE * torch.get_num_threads() if first.device.type == "cpu" else max(1, first.numel())
    yield from zip(*(torch.split(tensor.detach().view(-1), size) for tensor in tensors), strict=True)


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
