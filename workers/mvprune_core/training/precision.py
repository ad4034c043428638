"""Mixed precision: autocast, padding for bf16 and a check of the device's bf16 speed."""

from __future__ import annotations

import functools
import logging
import time
import warnings
from dataclasses import replace

import torch

from mvprune_core.base.settings import Precision
from mvprune_core.tasks.batching import Examples

log = logging.getLogger(__name__)

_SIDES, _ROUNDS = (128, 512), 4
_TOO_SLOW = 1.5  # far from what other processes do to the least of a few rounds


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A context for the forward pass; weights stay as they are."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def with_length_buckets(examples: Examples, precision: Precision) -> Examples:
    """The examples, padded to few different lengths if the precision is bf16."""
    # oneDNN caches a kernel for each shape of bf16 matrices, and every batch length gives another shape.
    return replace(examples, few_lengths=precision == "bf16")


def check_speed(device: torch.device, precision: Precision) -> None:
    """Warns where the device computes in bf16 more slowly than in fp32, and logs where fp32 is the slower choice."""
    times = slowdown(device)
    if precision == "fp32" and times < 1 / _TOO_SLOW:
        log.info(
            "a product of matrices takes %.2f times as long in bf16 as in fp32 here: precision bf16 is worth trying",
            times,
        )
    elif precision == "bf16" and times > _TOO_SLOW:
        warnings.warn(
            f"training.precision should be fp32 on this device, got bf16: a matrix product takes about {times:.1f} "
            "times as long in bf16 as in fp32",
            RuntimeWarning,
            stacklevel=2,
        )


@functools.cache
def slowdown(device: torch.device) -> float:
    """How many times as long a product of matrices takes in bf16 as in fp32, measured once per process: what processors
    can do is named differently by each of them, and says little about the kernels that torch has for it."""
    times = 1.0
    for side in _SIDES:
        matrices = [torch.ones(side, side, dtype=dtype, device=device) for dtype in (torch.float32, torch.bfloat16)]
        rounds = [[_seconds(matrix) for matrix in matrices] for _ in range(_ROUNDS)]
        fp32, bf16 = (min(seconds) for seconds in zip(*rounds, strict=True))
        times = bf16 / fp32
        if times > 2 * _TOO_SLOW:  # without bf16 instructions, one product of the next size can take a second
            break
    return times


def _seconds(matrix: torch.Tensor) -> float:
    began = time.perf_counter()
    (matrix @ matrix)[0, 0].item()  # waits for a GPU
    return time.perf_counter() - began
