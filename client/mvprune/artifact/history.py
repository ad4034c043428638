"""history.json: how a run went, in few enough numbers: curves, evaluations, distributions of weights and scores."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import read_limited
from mvprune.artifact.typed import decode
from mvprune.common.strictjson import InvalidJson, parse_json

HISTORY_FILE = "history.json"
MAX_POINTS = 500
"""Of a curve, however long the run was."""

_MAX_HISTORY = 4 << 20


@dataclass(frozen=True)
class Evaluated:
    """The metrics of a model after `step` steps, by their plain names."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Phase:
    """One phase of training, "dense" or "pruning".

    Attributes:
        name: of the phase.
        total_steps: that it was to take; patience may have ended it sooner.
        steps: where the curves have points, ascending, at most `MAX_POINTS`.
        loss: mean loss of the steps since the last point.
        density: fraction of the prunable weights that is kept after the step.
        evaluations: in the order of their steps, at most `MAX_POINTS`; the last is that of the result.
    """

    name: str
    total_steps: int
    steps: tuple[int, ...]
    loss: tuple[float, ...]
    density: tuple[float, ...]
    evaluations: tuple[Evaluated, ...]

    def __post_init__(self) -> None:
        points = {len(self.steps), len(self.loss), len(self.density)}
        if len(points) > 1 or max(*points, len(self.evaluations)) > MAX_POINTS:
            raise ArtifactError(f"steps, loss and density must have one length of at most {MAX_POINTS}")


@dataclass(frozen=True)
class Histogram:
    """Counts of numbers in bins of one width from `low` to `high`; the outer bins hold what lies beyond, too.

    Attributes:
        counts: by group, such as "kept"; all groups have as many bins.
    """

    low: float
    high: float
    counts: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        if not self.low < self.high or len({len(bins) for bins in self.counts.values()}) > 1:
            raise ArtifactError("low must be less than high, and all groups must have one length")


@dataclass(frozen=True)
class Plane:
    """Counts in two dimensions: `counts[group][y][x]`, over the bins of two histograms."""

    x: str
    y: str
    counts: Mapping[str, tuple[tuple[int, ...], ...]]

    def __post_init__(self) -> None:
        widths = {len(row) for rows in self.counts.values() for row in rows}
        if len(widths) > 1 or len({len(rows) for rows in self.counts.values()}) > 1:
            raise ArtifactError("all groups must have one size")


@dataclass(frozen=True)
class Resampled:
    """The primary metric on samples drawn, with replacement, from the examples that it was measured on.

    Attributes:
        examples: that the samples are drawn from.
        float32: the values, 4 bytes each from the lowest on, in base64.
    """

    examples: int
    float32: str

    def __post_init__(self) -> None:
        try:
            whole = len(base64.b64decode(self.float32, validate=True)) % 4 == 0
        except (binascii.Error, ValueError):
            whole = False
        if not whole:
            raise ArtifactError(f"float32 must be numbers of 4 bytes in base64, got {self.float32!r:.200}")

    @classmethod
    def of(cls, examples: int, values: Sequence[float]) -> Self:
        """With these values."""
        return cls(examples, base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode())

    @cached_property
    def values(self) -> tuple[float, ...]:
        """A value for each sample."""
        return tuple(value for (value,) in struct.iter_unpack("<f", base64.b64decode(self.float32)))


@dataclass(frozen=True)
class History:
    """How a run went.

    Attributes:
        phases: in their order. The dense one is there if there was a dense baseline, without points if the model was
            fine-tuned before.
        histograms: "weights", with the groups "original" (all prunable weights before training) and "kept"; "scores",
            with "kept" and "pruned", where the method learns scores.
        planes: "scores" over "weights" (as trained, those that are pruned too), with "kept" and "pruned".
        resampled: of a dense model, by the fingerprint of the data that it was measured on, for the intervals of the
            differences of models that are pruned from the same one.
    """

    VERSION: ClassVar[int] = 1

    phases: tuple[Phase, ...] = ()
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    planes: Mapping[str, Plane] = field(default_factory=dict)
    resampled: Mapping[str, Resampled] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """JSON in one line, always the same for the same history."""
        plain = {"version": self.VERSION, **asdict(self)}
        if not self.resampled:
            del plain["resampled"]
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return (text + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> History:
        """Reads what `to_json` wrote, and checks it.

        Raises:
            ArtifactError: names the field, what it holds and what is allowed.
        """
        try:
            values: Any = parse_json(content)
        except InvalidJson as error:
            raise ArtifactError(f"{HISTORY_FILE}: {error}") from error
        version = values.pop("version", None) if isinstance(values, dict) else None
        if type(version) is not int or version != cls.VERSION:
            raise ArtifactError(f"{HISTORY_FILE}: version must be {cls.VERSION}, got {version!r:.200}")
        return decode(cls, {"resampled": {}, **values}, HISTORY_FILE)


def read_history(directory: str | Path) -> History:
    """The history in an artifact's folder; whether the file is the artifact's is for `verify` to say.

    Raises:
        ArtifactError: there is none, or it is not valid.
    """
    try:
        content = read_limited(Path(directory) / HISTORY_FILE, _MAX_HISTORY)
    except OSError as error:
        raise ArtifactError(f"{directory}: {HISTORY_FILE}: {error.strerror or error}") from error
    return History.from_json(content)
