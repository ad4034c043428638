"""An artifact of at most so many bytes: the ways to store its parts, what each takes, and which one is taken."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy.typing as npt
from torch import nn

from mvprune.artifact import Coding, Values
from mvprune.artifact.model import state_arrays
from mvprune.artifact.parts import is_small
from mvprune.artifact.positions import position_tables
from mvprune.artifact.sizes import description_bytes, weights_bytes
from mvprune.artifact.weights import tied_names
from mvprune.common.units import exact_size, size
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.storing.word_steps import GRADES, Words

CANDIDATES = (Values.FP16, Values.INT8, Values.INT4)
"""Of the kept weights and of the embeddings, the finest first."""

OTHERS = (Values.FP16, Values.INT8)
"""Of positions, token types, pooler and head. They are small: int4 wins next to nothing, and loses most."""

RESERVED = 10_000
"""Bytes that are left for what is written after the choice: notes, and the options of a job."""

_LEAST_BITS = MappingProxyType(
    {Values.FP32: 20.0, Values.FP16: 10.0, Values.BF16: 7.0, Values.INT8: 5.0, Values.INT4: 2.5}
)
"""Of a kept weight, compressed: a bound from below, as weights that nobody has trained yet can only be estimated."""

_Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Storage:
    """A way to store an artifact.

    Attributes:
        coding: of the values.
        trimmed: whether the positions are trimmed.
        grade: how few steps the words of rare tokens have in int8, see `Words.steps`; 0: all have the most.
    """

    coding: Coding
    trimmed: bool
    grade: int = 0

    @property
    def levels(self) -> tuple[float, ...]:
        """How coarse each part is; 0 is the finest."""
        kinds, coding = list(Values), self.coding
        values, embeddings, others = (kinds.index(one) for one in (coding.values, coding.embeddings, _others(coding)))
        return values, embeddings + self.grade / (GRADES + 1), others, self.trimmed

    def __str__(self) -> str:
        coding = self.coding
        of_grade = f" of grade {self.grade}" if self.grade else ""
        parts = (("weights", coding.values), ("embeddings", coding.embeddings), ("others", _others(coding)))
        words = [f"{kind.value} {part}{of_grade if part == 'embeddings' else ''}" for part, kind in parts]
        return " and ".join([", ".join(words), *["trimmed positions"] * self.trimmed])


@dataclass(frozen=True)
class Candidate:
    """A way to store an artifact, measured.

    Attributes:
        storage: the way.
        total_bytes: of all files.
        loss: how far the outputs are from those of the finest way, see `divergence`. Where a kind of task has no such
            outputs, what the primary metric loses.
    """

    storage: Storage
    total_bytes: int
    loss: float


def storages(values: Sequence[Values], trimmed: Sequence[bool]) -> list[Storage]:
    """All ways to store an artifact, but of the grades only the coarsest: see `Sizes.finer`.

    Args:
        values: allowed codings of the kept weights.
        trimmed: whether the positions may be, or have to be, trimmed.
    """
    made = itertools.product(values, CANDIDATES, OTHERS, trimmed)
    ways = [Storage(Coding(kept, embeddings, others), cut) for kept, embeddings, others, cut in made]
    graded = [replace(way, grade=GRADES) for way in ways if way.coding.embeddings is Values.INT8]
    return ways + graded


def finest(ways: Sequence[Storage]) -> list[Storage]:
    """Those of which no other is as fine in every part. The best is among them: what is coarser loses no less."""
    return [
        one
        for one in ways
        if not any(
            other != one and all(mine >= its for mine, its in zip(one.levels, other.levels, strict=True))
            for other in ways
        )
    ]


class Sizes:
    """Bytes of all files of a model's artifact, by how it is stored. What each part takes is measured once.

    Args:
        model: values rounded to the finest coding.
        pruned: names of the pruned weights.
        words: the table of word embeddings.
        others: bytes of all files but the weights.
        rows: of a trimmed table of positions; None: it cannot be trimmed, or is already.
    """

    def __init__(self, model: nn.Module, pruned: Sequence[str], words: Words, others: int, rows: int | None) -> None:
        self._pruned, self._words, self._others, self._rows = pruned, words, others, rows
        self._parts = _parts(state_arrays(model), pruned, model)
        self._found: dict[tuple[str, Values, int | None, int], int] = {}

    def total(self, storage: Storage) -> int:
        """Bytes of all files, `RESERVED` ones among them."""
        coding, rows = storage.coding, self._rows if storage.trimmed else None
        weights = (
            self._part("weights", coding.values)
            + self._part("embeddings", coding.embeddings, grade=storage.grade)
            + self._part("positions", _others(coding), rows)
            + self._part("others", _others(coding))
        )
        return weights + self._others + RESERVED

    def finer(self, storage: Storage, target: int) -> Storage:
        """One that has grades with the finest that fits into `target`; the coarsest if none does."""
        if not storage.grade:
            return storage
        made = [replace(storage, grade=grade) for grade in range(1, GRADES)]
        first = bisect.bisect_left(made, -target, key=lambda one: -self.total(one))
        return made[first] if first < len(made) else storage

    def _part(self, part: str, kind: Values, rows: int | None = None, grade: int = 0) -> int:
        key = part, kind, rows, grade
        if key not in self._found:
            tensors = {name: array[:rows] if rows else array for name, array in self._parts[part].items()}
            tensors = self._words.rounded(tensors, grade)
            self._found[key] = weights_bytes(tensors, self._pruned, Coding(kind, kind))
        return self._found[key]


def check_target(
    target: int,
    model: Any,
    tokenizer: Any,
    pruned: Mapping[str, int],
    density: float,
    values: Values,
    *,
    whole: bool,
    trimmed: bool,
    rows: int | None,
) -> None:
    """Checks, before training, that an artifact can have `target` bytes, with the smallest candidate.

    Args:
        target: bytes.
        model, tokenizer: before training.
        pruned: names of the weights that will be pruned, with their sizes.
        density: fraction of them to keep.
        values: the coarsest allowed coding of the kept weights.
        whole: whether positions may be next to free, as those of structures and patterns.
        trimmed: whether the vocabulary will be trimmed, to a size that is not counted here.
        rows: of a trimmed table of positions; None: it cannot be trimmed.

    Raises:
        CompressionError: TARGET_NOT_REACHED, it cannot; with what it needs at least.
    """
    gaps = 0.0 if whole or density == 1 else _entropy(density) / density
    kept = density * sum(pruned.values())
    encoder = math.ceil(kept * (gaps + _LEAST_BITS[values]) / 8)
    parts = _parts(state_arrays(model), tuple(pruned), model)
    words = Words.unread(model)
    if trimmed:
        parts["embeddings"] = {name: array for name, array in parts["embeddings"].items() if name not in words.names}
    if rows:
        parts["positions"] = {name: array[:rows] for name, array in parts["positions"].items()}
    tensors = {**parts["embeddings"], **parts["positions"], **parts["others"]}
    rest = description_bytes(model.config, tokenizer) + min(
        weights_bytes(words.rounded(tensors, grade), (), Coding(values, kind, OTHERS[-1]))
        for kind, grade in ((Values.INT8, GRADES), (Values.INT4, 0))
    )
    if encoder + rest > target:
        raise CompressionError(
            Reason.TARGET_NOT_REACHED,
            f"target_bytes must be at least about {size(encoder + rest)} for this model, got {exact_size(target)}: "
            f"{size(encoder)} for the kept weights in {values.value}, and {size(rest)} for the rest with the "
            "coarsest embeddings and for the tokenizer; take a lower density, no weight_dtype, trim_vocabulary, or a "
            "smaller model",
        )


def check_fits(smallest: Storage, total: int, target: int) -> None:
    """Checks that the smallest candidate fits into the target.

    Raises:
        CompressionError: TARGET_NOT_REACHED, it does not.
    """
    if total > target:
        raise CompressionError(
            Reason.TARGET_NOT_REACHED,
            f"target_bytes must be at least about {size(total)} for the trained model, got {exact_size(target)}: that "
            f"is what {smallest} take, with all other files; take a lower density, no weight_dtype, trim_vocabulary, "
            "or a smaller model",
        )


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate with the least loss; of equals one with all positions, then the largest."""
    return min(candidates, key=lambda one: (one.loss, one.storage.trimmed, -one.total_bytes))


def note_on_target(
    candidates: Sequence[Candidate], chosen: Candidate, exact: Candidate, target: int, loss: str, metric: str
) -> str:
    """The choice, and the size and loss of each candidate.

    Args:
        candidates: the measured ones.
        chosen: one of them.
        exact: the finest way, which need not fit, and loses nothing.
        target: bytes.
        loss: what the candidates' loss is.
        metric: the metric of what is stored, and that of the finest way.
    """

    def described(one: Candidate) -> str:
        lost = f", {loss} {one.loss:.2g}" if one.storage != exact.storage else ""
        return f"{one.storage}: {size(one.total_bytes)}{lost}"

    others = [one for one in candidates if one is not chosen]
    if chosen.storage != exact.storage:
        others.append(exact)
    text = f"target_bytes {exact_size(target)}: stored are {described(chosen)}, {metric}"
    return "; ".join([text, *[f"compared with {', '.join(map(described, others))}"] * bool(others)])


def _others(coding: Coding) -> Values:
    return coding.embeddings if coding.others is None else coding.others


def _parts(arrays: _Arrays, pruned: Sequence[str], model: nn.Module) -> dict[str, _Arrays]:
    """The tensors of a model by what they are stored as."""
    parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for part in ("weights", "embeddings", "positions", "others"):
        parts[part] = {}
    tables = {f"{name}.weight" for name in position_tables(model)}
    for names in tied_names(arrays):
        part = "others" if is_small(*names) else "embeddings"
        if tables.intersection(names):
            part = "positions"
        if any(name in pruned for name in names):
            part = "weights"
        parts[part] |= {name: arrays[name] for name in names}
    return dict(parts)


def _entropy(density: float) -> float:
    """Bits of a position that is kept with this probability."""
    return -density * math.log2(density) - (1 - density) * math.log2(1 - density)
