"""An artifact of at most so many bytes: the coding of the embeddings with which the task's metric loses least."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from mvprune.artifact import Coding, Values
from mvprune.artifact.sizes import tokenizer_bytes, unpruned_bytes, weights_bytes
from mvprune.common.units import exact_size, size
from mvprune.data.tasks import Task
from mvprune_core.errors import CompressionError, Reason

CANDIDATES = (Values.FP16, Values.INT8, Values.INT4)
"""Of the matrices that are not pruned, the finest first."""

OTHER_FILES = 160_000
"""Bytes that are left for configuration, card, history, report and manifest, which the result's numbers fill."""

_LEAST_BITS = MappingProxyType(
    {Values.FP32: 20.0, Values.FP16: 10.0, Values.BF16: 7.0, Values.INT8: 5.0, Values.INT4: 2.5}
)  # of a kept weight, compressed: a bound from below, as weights that nobody has trained yet can only be estimated


@dataclass(frozen=True)
class Candidate:
    """A coding of the embeddings.

    Attributes:
        total_bytes: about, of all files of the artifact.
        metrics: of the task, with it.
    """

    embeddings: Values
    total_bytes: int
    metrics: Mapping[str, float]


def estimated_bytes(model: nn.Module, tokenizer: Any, pruned: Collection[str], coding: Coding) -> int:
    """Bytes of all files of an artifact of a model whose values are rounded: weights and tokenizer are counted."""
    return weights_bytes(model, pruned, coding) + tokenizer_bytes(tokenizer) + OTHER_FILES


def check_target(
    target: int,
    model: nn.Module,
    tokenizer: Any,
    pruned: Mapping[str, int],
    density: float,
    coding: Coding,
    *,
    whole: bool,
    trimmed: bool,
) -> None:
    """Checks, before training, that an artifact can have `target` bytes, with the smallest candidate.

    Args:
        target: bytes.
        model, tokenizer: before training.
        pruned: names of the weights that will be pruned, with their sizes.
        density: fraction of them to keep.
        coding: of the kept weights.
        whole: whether positions may be next to free, as those of structures and patterns.
        trimmed: whether the vocabulary will be trimmed, to a size that is not counted here.

    Raises:
        CompressionError: DENSITY_NOT_REACHED, it cannot; with what it needs at least.
    """
    positions = 0.0 if whole or density == 1 else _entropy(density) / density
    kept = density * sum(pruned.values())
    encoder = math.ceil(kept * (positions + _LEAST_BITS[coding.values]) / 8)
    words = model.get_input_embeddings().weight  # type: ignore[operator]
    names = {name for name, value in model.state_dict(keep_vars=True).items() if value is words} if trimmed else set()
    smallest = Coding(coding.values, CANDIDATES[-1])
    rest = unpruned_bytes(model, pruned, names, smallest) + tokenizer_bytes(tokenizer)
    if encoder + rest > target:
        raise CompressionError(
            Reason.DENSITY_NOT_REACHED,
            f"target_bytes must be at least about {size(encoder + rest)} for this model, got {exact_size(target)}: "
            f"{size(encoder)} for the kept weights in {coding.values.value}, and {size(rest)} for the rest with "
            "embeddings in int4 and for the tokenizer; take a lower density, weight_dtype int8, trim_vocabulary, or a "
            "smaller model",
        )


def choose(candidates: Sequence[Candidate], target: int, task: Task) -> Candidate:
    """The candidate of at most `target` bytes with the best primary metric, the finest of equals; if there is none, the
    smallest."""
    fitting = [one for one in candidates if one.total_bytes <= target]
    if not fitting:
        return min(candidates, key=lambda one: one.total_bytes)
    sign = 1 if task.higher_is_better else -1
    return max(fitting, key=lambda one: sign * one.metrics[task.primary_metric])


def note_on_target(candidates: Sequence[Candidate], chosen: Candidate, target: int, task: Task) -> str:
    """What was chosen, and what each candidate would have cost."""

    def described(one: Candidate) -> str:
        value = one.metrics[task.primary_metric]
        return f"{one.embeddings.value} with {size(one.total_bytes)} and {task.primary_metric} {value:.4f}"

    others = ", ".join(described(one) for one in candidates if one is not chosen)
    missed = "" if chosen.total_bytes <= target else ", which misses it: take a lower density or weight_dtype int8"
    stored = f"the embeddings are stored in {described(chosen)}{missed}"
    return f"target_bytes {exact_size(target)}: {stored}; measured: {others}"


def _entropy(density: float) -> float:
    """Bits of a position that is kept with this probability."""
    return -density * math.log2(density) - (1 - density) * math.log2(1 - density)
