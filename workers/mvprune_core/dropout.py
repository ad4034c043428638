"""Dropout, off in training unless asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """A context in which the model's modules drop nothing, in training mode too.

    Modules keep the probability as `p`, if they are torch's, or as a number with "drop" in its name, as transformers'
    attention and layers do.
    """
    found = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, float) and ("drop" in name or (name == "p" and "Dropout" in type(module).__name__))
    ]
    for module, name, _ in found:
        setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, value in found:
            setattr(module, name, value)
