"""Runs histories, and makes those that fail short."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from .happenings import Happening, plan
from .world import Outcome, tell

_SHOWN = 60  # lines of a trace
_COLLECT_EVERY = 25  # histories
_run = count()


@dataclass(frozen=True)
class Failed:
    """A history that failed, and the shortest one of it that fails too.

    Attributes:
        kept: numbers of the happenings that are left.
        runs: how many histories were tried.
    """

    seed: str
    happenings: Sequence[Happening]
    kept: Sequence[int]
    outcome: Outcome
    runs: int

    def __str__(self) -> str:
        """What happened, what failed, and how to run it again."""
        error = self.outcome.failure
        lines = [
            f"seed {self.seed} fails: {error}",
            "",
            f"What must happen for that ({len(self.kept)} of {len(self.happenings)} happenings):",
            *(f"{number:4}  {self.happenings[number]}" for number in self.kept),
            "",
            f"The end of its history ({len(self.outcome.trace)} effects):",
            *self.outcome.trace[-_SHOWN:],
            "",
            *("".join(traceback.format_exception(error)).splitlines() if error else ()),
            "",
            "Again: make simulate "
            f"SEEDS={self.seed}..{self.seed} ARGS='--keep {','.join(map(str, self.kept))} --trace'",
        ]
        return "\n".join(lines)


def failing(seeds: Sequence[str]) -> Iterator[str]:
    """The seeds whose history fails."""
    if gc.isenabled():  # what is imported now stays: it is not looked at again
        gc.collect()
        gc.freeze()
        gc.disable()
    for seed in seeds:
        if next(_run) % _COLLECT_EVERY == 0:
            gc.collect()
        if (error := tell(seed, plan(seed)).failure) is not None:
            print(f"seed {seed} fails: {error}", file=sys.stderr, flush=True)
            yield seed


def shorten(seed: str) -> Failed:
    """Leaves out happenings while the history still fails: halves first, then ever smaller parts."""
    happenings = plan(seed)
    kept, runs = list(range(len(happenings))), 1
    outcome = tell(seed, happenings)
    size = max(1, len(kept) // 2)
    while True:
        start, is_shorter = 0, False
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            tried = tell(seed, [happenings[number] for number in fewer])
            runs += 1
            if tried.failure is not None:
                kept, outcome, is_shorter = fewer, tried, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not is_shorter:
            return Failed(seed, happenings, kept, outcome, runs)
