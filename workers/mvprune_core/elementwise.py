"""Elementwise operations on many matrices, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

_T = TypeVar("_T")
PIECE = 1 << 16  # values that a core processes at a time, so that they stay in its cache


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """out ← left ⊙ right, without gradients. `right` may be bool. All are contiguous and have one shape."""
    if out.device.type == "cpu" and out.dtype == torch.float32:
        # numpy multiplies by bool as fast as by float, twice as fast as torch.
        np.multiply(left.detach().numpy(), right.detach().numpy(), out=out.detach().numpy())
    else:
        torch.mul(left.detach(), right.detach(), out=out.detach())


def share_gradient(grad: Tensor, weight: Tensor, masked: Tensor) -> None:
    """With G in `grad` and W' in `masked`: masked ← G ⊙ W, grad ← G ⊙ [W' ≠ 0]. All contiguous, of one shape."""
    if grad.device.type != "cpu" or grad.dtype != torch.float32:
        kept = masked.detach() != 0
        torch.mul(grad, weight.detach(), out=masked.detach())
        grad.mul_(kept)
        return
    all_grads, all_weights, all_masked = (tensor.detach().numpy().reshape(-1) for tensor in (grad, weight, masked))
    for start in range(0, len(all_grads), PIECE):
        piece = slice(start, start + PIECE)
        grads, products = all_grads[piece], all_masked[piece]
        kept_piece = products != 0
        np.multiply(grads, all_weights[piece], out=products)
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
    if threads == 1:
        for index, item in enumerate(items):
            function(index, item)
        return
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(function, index, item) for index, item in enumerate(items)]:
            job.result()
