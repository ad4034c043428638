"""Exact top-v selection: which entries of a matrix are kept.

A full sort of BERT-base's 72 matrices costs as much as two training steps. Here the k-th largest value is found in
linear time: on the CPU by numpy's introselect, on other devices by `topk`, which does not wait for the device.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def kept_count(size: int, density: float) -> int:
    """Number of entries that `density` keeps of `size`: ⌊density · size⌋, safe from rounding (0.1 · 30 keeps 3)."""
    return min(size, math.floor(density * size + 1e-9 * max(1.0, density * size)))


def select_top(importance: Tensor, count: int, mask: Tensor, seed: int) -> None:
    """Writes 1 into `mask` where `importance` is among its `count` largest entries, 0 elsewhere.

    Exactly `count` ones are written whatever the values. Among equal values at the boundary the choice is random,
    decided by `seed` alone, so that constant scores do not keep whole rows.

    Args:
        importance: float32 tensor of any shape.
        count: 0 ≤ count ≤ importance.numel().
        mask: float32 tensor of the same shape and device, overwritten.
        seed: of the choice among equal values.
    """
    if count == 0:
        mask.zero_()
    elif count == importance.numel():
        mask.fill_(1.0)
    elif importance.device.type == "cpu":
        _select_by_partition(importance, count, mask, seed)
    else:
        _select_on_device(importance, count, mask, seed)


def _select_by_partition(importance: Tensor, count: int, mask: Tensor, seed: int) -> None:
    values = importance.detach().numpy().reshape(-1)
    position = values.size - count
    threshold = np.partition(values, position)[position]
    keep = values >= threshold
    surplus = np.count_nonzero(keep) - count
    if surplus > 0:
        ties = np.flatnonzero(values == threshold)
        keep[np.random.default_rng(seed).choice(ties, surplus, replace=False, shuffle=False)] = False
    np.copyto(mask.numpy().reshape(-1), keep)


def _select_on_device(importance: Tensor, count: int, mask: Tensor, seed: int) -> None:
    # topk decides between equal values by position: a random order of positions makes that choice random.
    generator = torch.Generator(importance.device).manual_seed(seed)
    order = torch.randperm(importance.numel(), generator=generator, device=importance.device)
    chosen = torch.topk(importance.detach().reshape(-1)[order], count, sorted=False).indices
    mask.zero_().view(-1)[order[chosen]] = 1.0
