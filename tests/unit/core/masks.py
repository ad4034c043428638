"""Masks of a model as a run makes and updates them, without the run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mvprune_core import METHODS, LockedMask, Method, Random
from mvprune_core.training.masking import Masks

_SAMPLES = 3


def new_masks(model: nn.Module, method: Method, *, total_steps: int, **options: Any) -> Masks:
    """Masks before training. A method that must be given masks is given random ones of the density."""
    if isinstance(method, LockedMask):
        given = Masks(model, Random(), total_steps=total_steps, **options)
        given.update(total_steps)
        options["given"] = {matrix.name: matrix.kept for matrix in given.matrices}
        for matrix in given.matrices:
            matrix.applied = None
    return Masks(model, method.for_run(total_steps), total_steps=total_steps, **options)


def update(masks: Masks, step: int) -> None:
    """Updates masks after `step` steps. A method that samples gradients is given random ones."""
    generator = torch.Generator().manual_seed(step)
    for _ in range(min(_SAMPLES, masks.gradient_samples(step))):
        for matrix in masks.matrices:
            matrix.weight.grad = torch.randn(matrix.weight.shape, generator=generator)
        masks.add_sample()
    masks.update(step)


def methods() -> list[Method]:
    """One of each method, with default options."""
    return [method() for method in METHODS.values()]


class NoCopies(TorchDispatchMode):
    """To copy from one device to another is to wait for it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))
