"""Element by element over many matrices, on whatever device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

_T = TypeVar("_T")


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """out ← left ⊙ right, without gradients. `right` may be bool; all are contiguous and of one shape."""
    if out.device.type == "cpu":
        # numpy multiplies by bool as fast as by float, twice as fast as torch does.
        np.multiply(left.detach().numpy(), right.detach().numpy(), out=out.detach().numpy())
    else:
        torch.mul(left.detach(), right.detach(), out=out.detach())


def in_parallel(function: Callable[[int, _T], None], items: Sequence[_T]) -> None:
    """Calls `function(index, item)` for every item, spread over torch's threads.

    numpy works on one core and releases the interpreter meanwhile: matrices are shared out among the cores.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        for index, item in enumerate(items):
            function(index, item)
        return
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(function, index, item) for index, item in enumerate(items)]:
            job.result()
