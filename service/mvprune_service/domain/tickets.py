"""The next runs of a study of lottery tickets: those whose mask is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mvprune.sweep.tickets.study import Key, Run
from mvprune_service.domain.sweeping import PointState

_UNDECIDED = frozenset({PointState.PENDING, PointState.QUEUED, PointState.RUNNING})


class Next(NamedTuple):
    """The runs to add now, and whether no further ones will be added."""

    runs: list[Run]
    is_complete: bool


def next_runs(runs: Sequence[Run], states: Mapping[Key, PointState]) -> Next:
    """The runs of a study that can be trained.

    A run whose mask comes from another one is added when that one has SUCCEEDED. One that ended without a result stops
    the runs after it, and no others, until it is retried.

    Args:
        runs: of the study, each after the one that its mask comes from.
        states: of the points that the sweep has.
    """
    ready, awaited = list[Run](), set[Key]()  # awaited: runs that may have a result later
    for run in runs:
        state = states.get(run.key)
        if state is not None:
            awaited |= {run.key} if state in _UNDECIDED else set()
        elif run.mask is None or states.get(run.mask.key) is PointState.SUCCEEDED:
            ready.append(run)
            awaited.add(run.key)
        elif run.mask.key in awaited:
            awaited.add(run.key)
    return Next(ready, not any(run.key in awaited and run.key not in states for run in runs))
