"""Exact counts of a pruned model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from mvprune.artifact import Accounting, LayerCount
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.families import in_block

_TOLERANCE = 0.1  # relative, of the density


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


def check_density(asked: float, kept: int, prunable: int, remedy: str) -> None:
    """Refuses `kept` of `prunable` weights where that is not the density that was asked for.

    Raises:
        CompressionError: DENSITY_NOT_REACHED, with the `remedy`, or allow_density_miss.
    """
    if abs(kept / prunable - asked) > _TOLERANCE * asked:
        raise CompressionError(
            Reason.DENSITY_NOT_REACHED,
            f"density {asked:g} was asked for, but keeping {kept:,} of {prunable:,} weights is {kept / prunable:g}, "
            f"off by more than 10 %; {remedy}, or allow_density_miss",
        )
