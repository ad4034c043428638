"""Exact counts of a pruned model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from mvprune.artifact import Accounting, LayerCount
from mvprune_core.families import in_block


def account(
    model: nn.Module, pruned: Sequence[str], target_density: float
) -> tuple[Accounting, tuple[LayerCount, ...]]:
    """Counts a plain model whose masks are folded in; a shared parameter counts once.

    Args:
        model: the model.
        pruned: names of its pruned weights.
        target_density: what was asked for.
    """
    parameters = dict(model.named_parameters())
    sizes = {name: parameter.numel() for name, parameter in parameters.items()}
    nonzero = {name: int(torch.count_nonzero(parameter)) for name, parameter in parameters.items()}
    encoder = [name for name in parameters if in_block(name)]
    prunable, kept = sum(sizes[name] for name in pruned), sum(nonzero[name] for name in pruned)
    accounting = Accounting(
        target_density=target_density,
        density=kept / prunable,
        prunable_weights=prunable,
        kept_weights=kept,
        encoder_parameters=sum(sizes[name] for name in encoder),
        encoder_nonzero=sum(nonzero[name] for name in encoder),
        total_parameters=sum(sizes.values()),
        total_nonzero=sum(nonzero.values()),
        dense_bytes=4 * sum(sizes.values()),
    )
    layers = tuple(
        LayerCount(name, tuple(parameters[name].shape), nonzero[name] / sizes[name], nonzero[name]) for name in pruned
    )
    return accounting, layers
