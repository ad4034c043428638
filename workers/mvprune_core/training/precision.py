"""Mixed precision: autocast, padding for bf16, and the choice between fp32 and bf16 by measuring both."""

from __future__ import annotations

import functools
import itertools
import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mvprune_core.base.settings import Precision, Settings
from mvprune_core.base.state import seeded
from mvprune_core.tasks.batching import Examples, Indices, training_batches
from mvprune_core.tasks.losses import Loss
from mvprune_core.training.training_mode import training_mode

log = logging.getLogger(__name__)

_SIDES, _ROUNDS = (128, 512), 4
_TOO_SLOW = 1.5  # far from what other processes do to the least of a few rounds

LEAST_WORK = 1e10
"""Weights times examples of a run below which it trains in fp32 without measuring: it takes a minute at most."""
_FASTER = 1.3  # by which bf16 has to be faster
_LOSS_BOUND, _GRADIENT_BOUND = 0.02, 0.99  # relative difference of the losses at most; cosine of the gradients at least
_BATCHES = 2
_CPU_WORK = 2e9  # weights times tokens of a batch that is measured on a CPU: about a second


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


class Choice(NamedTuple):
    """A precision, and why it was chosen, as a sentence."""

    precision: Precision
    why: str


def choose_precision(
    model: nn.Module, weights: Sequence[Tensor], examples: Examples, loss: Loss, settings: Settings, seed: int
) -> Choice:
    """bf16 if a step takes at most 1 / 1.3 of the time in fp32, the losses of the same batches differ by at most 2 %,
    and the cosine of the gradients is at least 0.99; else fp32.

    Nothing is updated: weights and random states are afterwards as before.

    Args:
        model: on the device of the training; left in evaluation mode.
        weights: those of its pruned matrices, whose gradients are compared.
        examples: the training examples.
        loss: what is minimised.
        settings: of the training.
        seed: of the batches.
    """
    device = next(model.parameters()).device
    if device.type == "cpu" and (times := slowdown(device)) >= 1:
        return Choice("fp32", f"a product of matrices takes {times:.2f} times as long in bf16 as in fp32 here")
    count = max(1, settings.batch_size // settings.accumulation_steps)
    if device.type == "cpu":
        of_example = sum(weight.numel() for weight in weights) * float(examples.lengths.mean())
        count = max(1, min(count, int(_CPU_WORK / of_example)))
    whole = itertools.islice(training_batches(examples.lengths, settings.batch_size, seed), _BATCHES)
    batches = [indices[:count] for indices in whole]
    plain = replace(settings, dropout=False)  # both precisions see the same
    with seeded(seed, device), training_mode(model, plain):
        passes = [_Passes(model, weights, with_length_buckets(examples, one), loss, one) for one in ("fp32", "bf16")]
        for one, indices in itertools.product(passes, batches):  # the first pass of a shape compiles kernels
            one.run(indices)
        found = [_compared(*(one.run(indices) for one in passes)) for indices in batches]
    model.eval()
    share = sum(one.bf16 for one in found) / sum(one.fp32 for one in found)
    apart = fmean(one.apart for one in found) / max(fmean(one.loss for one in found), 1e-6)
    cosine = min(one.cosine for one in found)
    measured = (
        f"a step in bf16 takes {share:.2f} of the time in fp32 here, its loss differs by {apart:.1%}, and the cosine "
        f"of the gradients is {cosine:.3f}"
    )
    is_better = share <= 1 / _FASTER and apart <= _LOSS_BOUND and cosine >= _GRADIENT_BOUND
    return Choice("bf16" if is_better else "fp32", measured)


class _Pass(NamedTuple):
    seconds: float
    loss: float
    gradient: Tensor


class _Compared(NamedTuple):
    """A batch: seconds in each precision, the size of the loss, its difference, and the cosine of the gradients."""

    fp32: float
    bf16: float
    loss: float
    apart: float
    cosine: float


def _compared(fp32: _Pass, bf16: _Pass) -> _Compared:
    cosine = float(functional.cosine_similarity(fp32.gradient, bf16.gradient, dim=0))
    apart = abs(bf16.loss - fp32.loss)
    return _Compared(fp32.seconds, bf16.seconds, abs(fp32.loss), apart, cosine)


@dataclass(frozen=True)
class _Passes:
    """Forward and backward passes of a model in one precision."""

    model: nn.Module
    weights: Sequence[Tensor]
    examples: Examples
    loss: Loss
    precision: Precision

    def run(self, indices: Indices) -> _Pass:
        device = next(self.model.parameters()).device
        batch = self.examples.batch(indices, device, np.random.default_rng(0))
        inputs: dict[str, Any] = {name: column for name, column in batch.items() if name not in self.loss.labels}
        began = time.perf_counter()
        with autocast(device, self.precision):
            loss = self.loss(self.model(**inputs), batch)
        gradients = torch.autograd.grad(loss, self.weights, allow_unused=True)
        gradient = torch.cat([one.flatten() for one in gradients if one is not None])
        _, value = gradient[0].item(), loss.item()  # waits for a GPU
        return _Pass(time.perf_counter() - began, value, gradient)


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
