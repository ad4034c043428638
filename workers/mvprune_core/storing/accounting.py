"""Exact counts of a pruned model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from mvprune.artifact import Accounting, LayerCount
from mvprune.common.blocks import in_block
from mvprune.common.units import percent
from mvprune.spec.kept import problem_with_kept
from mvprune_core.base.errors import CompressionError, Reason

_SHOWN = 6  # names in a note


def account(
    model: nn.Module, pruned: Sequence[str], density: float, sizes: Mapping[str, int] | None = None, prunable: int = 0
) -> tuple[Accounting, tuple[LayerCount, ...]]:
    """Counts the weights of a plain model whose masks are applied. A shared parameter counts once.

    Args:
        model: the model.
        pruned: names of its pruned weights.
        density: the density that was requested.
        sizes: elements of every parameter by name, before structures were removed; by default the model's.
        prunable: elements of the pruned weights, before layers were removed; by default those that `pruned` names.
    """
    parameters = dict(model.named_parameters())
    sizes = sizes or {name: parameter.numel() for name, parameter in parameters.items()}
    nonzero = {name: int(torch.count_nonzero(parameter)) for name, parameter in parameters.items()}
    prunable = prunable or sum(sizes[name] for name in pruned)
    kept = sum(nonzero[name] for name in pruned)
    accounting = Accounting(
        target_density=density,
        density=kept / prunable,
        prunable_weights=prunable,
        kept_weights=kept,
        encoder_parameters=sum(size for name, size in sizes.items() if in_block(name)),
        encoder_nonzero=sum(count for name, count in nonzero.items() if in_block(name)),
        total_parameters=sum(sizes.values()),
        total_nonzero=sum(nonzero.values()),
        dense_bytes=4 * sum(sizes.values()),
    )
    layers = tuple(
        LayerCount(name, tuple(parameters[name].shape), nonzero[name] / sizes[name], nonzero[name]) for name in pruned
    )
    return accounting, layers


def check_density(density: float, kept: int, prunable: int, remedy: str) -> None:
    """Checks that `kept` of `prunable` weights is the density that was requested, within 10 %.

    Raises:
        CompressionError: DENSITY_NOT_REACHED, with the `remedy`.
    """
    if problem := problem_with_kept(density, kept, prunable, remedy):
        raise CompressionError(Reason.DENSITY_NOT_REACHED, f"the density {problem}")


def notes_on_empty(layers: Sequence[LayerCount], *, is_global: bool) -> Iterator[str]:
    """A note on matrices of which no weight is left, so that their layers compute the same for every input.

    Args:
        layers: the counts of all pruned matrices.
        is_global: whether the weights of all matrices competed with each other.
    """
    if empty := [layer.name.removesuffix(".weight") for layer in layers if not layer.nonzero]:
        more = f" and {len(empty) - _SHOWN} more" * (len(empty) > _SHOWN)
        remedy = "take selection local, or a higher density" if is_global else "take a higher density"
        yield (
            f"{len(empty)} of {len(layers)} pruned matrices have no weights left, and give only their bias: "
            f"{', '.join(empty[:_SHOWN])}{more}; {remedy}"
        )


def note_on_zeros(kept: int, stored: int, prunable: int) -> str:
    """What is said where only `stored` of `kept` weights, of all `prunable` ones, are not zero in int4."""
    zeros = f"int4 made {percent(1 - stored / kept)} of the kept weights zero"
    density, wanted = percent(stored / prunable), percent(kept / prunable)
    return zeros if density == wanted else f"{zeros}: the density is {density}, not {wanted}"
