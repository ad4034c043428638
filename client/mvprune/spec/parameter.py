"""A parameter of a job, as `Client.submit`, `mvpctl submit` and job files take it."""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

AUTO = "auto"
"""The method of a job for which one is chosen: see `mvprune.spec.method_choice`."""
_SCALES = {86_400: ("day", "days"), 60: ("min", "min"), 1: ("s", "s")}
_SIZES = {1 << 50: "PiB", 1 << 40: "TiB", 1 << 30: "GiB", 1 << 20: "MiB"}


class Kind(Enum):
    """The kinds of values."""

    TEXT = "text"
    WORD = "a word"
    NUMBER = "a number"
    WHOLE = "a whole number"
    FLAG = "true or false"
    TIME = "seconds, or a number with s, m, h or d, such as 90s, 15m, 2h or 7d"
    SIZE = "bytes, or a number with a unit, such as 8GiB or 500MB"
    TEXTS = "a list of texts"
    LABELS = "a table of texts"


class Bound(NamedTuple):
    """An allowed range of numbers.

    Args:
        low, high: the smallest and the largest number that is allowed.
        open_low: whether `low` itself is not allowed.
        unit: of the numbers: bytes, or s; "" for others.
    """

    low: float
    high: float
    open_low: bool = False
    unit: str = ""

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int | float)
            and math.isfinite(value)
            and self.low <= value <= self.high
            and not (self.open_low and value == self.low)
        )

    def __str__(self) -> str:
        low, high = (written(number, self.unit) for number in (self.low, self.high))
        return f"above {low}, at most {high}" if self.open_low else f"from {low} to {high}"


class MethodFacts(NamedTuple):
    """Facts that rules of a job depend on.

    Attributes:
        name: of the method.
        help: how it chooses weights.
        ranks_weights: any groups of weights can be compared by the importance of their weights.
        takes_blocks: it can keep and drop blocks of four weights, though it ranks no other groups.
        takes_start: it can go on from a model that was pruned before, whose zeros stay.
        is_gated: it can have one gate for a whole head or unit.
        freezes_weights: it trains no weights of the model's body.
        needs_dense_steps: it needs gradients of the dense model before it prunes.
        shape: of its schedule by default.
    """

    name: str
    help: str = ""
    ranks_weights: bool = False
    takes_blocks: bool = False
    takes_start: bool = False
    is_gated: bool = False
    freezes_weights: bool = False
    needs_dense_steps: bool = False
    shape: str = "cubic"


class Parameter(NamedTuple):
    """One parameter of a job.

    Attributes:
        name: in `Client.submit` and job files.
        fields: the fields of mvprune.v1.Job that it sets: one, or one for each method or choice.
        kind: what it takes.
        words: the words that it takes; (): any text.
        help: one line of plain text.
        default: what an unset parameter means: a value, or words.
        bound: of numbers.
        unit: see mvprune.v1.Parameter.
        group: of options that belong together.
        flag: of `mvpctl submit`.
        metavar: the name of the value in the help of `mvpctl submit`.
        methods: the methods that have it; (): it is no option of a method.
        is_common: whether `mvpctl submit --help` shows it.
        by_name: whether `mvpctl submit` has no option for it but --set NAME=VALUE.
        key: in the manifests of artifacts, where it is not the name of its field.
    """

    name: str
    fields: tuple[str, ...]
    kind: Kind
    help: str
    group: str
    flag: str
    words: tuple[str, ...] = ()
    default: str = ""
    bound: Bound | None = None
    unit: str = ""
    metavar: str = ""
    methods: tuple[str, ...] = ()
    is_common: bool = False
    by_name: bool = False
    key: str = ""

    @property
    def manifest_key(self) -> str:
        """Its key in the manifests of artifacts."""
        return self.key or self.fields[0].rpartition(".")[2]

    @property
    def takes(self) -> str:
        """Its values, in words."""
        return ", ".join(self.words) or self.kind.value

    @property
    def description(self) -> str:
        """The help with bounds, methods and default."""
        rules = [self.help, *([str(self.bound)] if self.bound else [])]
        rules += [f"for {', '.join(self.methods)}"] if self.methods else []
        return "; ".join([*rules, *([f"default: {self.default}"] if self.default else [])])


def written(number: float, unit: str) -> str:
    """A number for people; `unit` as in `Bound`."""
    if unit == "s":
        scale, names = next((scale, names) for scale, names in _SCALES.items() if number % scale == 0)
        count = round(number / scale)
        return f"{count:,} {names[count != 1]}"
    if unit == "bytes":
        scale, name = next((scale, name) for scale, name in _SIZES.items() if number % scale == 0)
        return f"{number / scale:g} {name}"
    return f"{number:,.15g}"
