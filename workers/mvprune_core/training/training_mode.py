"""The mode in which a model trains: dropout, gradient checkpointing and deterministic algorithms."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from mvprune_core.base.settings import Settings


@contextmanager
def training_mode(model: Any, settings: Settings) -> Iterator[None]:
    """A context in which the model is in training mode, as `settings` say."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS raises an error
        torch.use_deterministic_algorithms(True)
    model.train()
    try:
        with nullcontext() if settings.dropout else without_dropout(model):
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_disable()


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """A context in which the model's modules drop nothing, even in training mode.

    torch's modules keep the probability as `p`; transformers' attention and layers keep it as a number with "drop" in
    its name.
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
