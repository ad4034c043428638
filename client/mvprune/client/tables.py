"""The tables about a job that a terminal and a page show: a heading, and rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.client.display import failure, transition
from mvprune.common.units import timestamp

if TYPE_CHECKING:
    from mvprune.client.models import Attempt, JobEvent

EVENT_COLUMNS = ("#", "TIME (UTC)", "TYPE", "STATE", "ACTOR", "DETAILS")
ATTEMPT_TIMES = ("CREATED (UTC)", "STARTED", "ENDED")
ATTEMPT_COLUMNS = ("#", "STATE", "NODE", *ATTEMPT_TIMES, "FAILURE")


def event_rows(events: Sequence[JobEvent]) -> list[list[str]]:
    """The audit trail of a job: the cells below EVENT_COLUMNS."""
    return [
        [
            str(event.sequence),
            timestamp(event.time),
            event.type,
            transition(event),
            event.actor,
            " ".join(f"{key}={value}" for key, value in sorted(event.details.items())),
        ]
        for event in events
    ]


def attempt_rows(attempts: Sequence[Attempt]) -> list[list[str]]:
    """The attempts of a job: the cells below ATTEMPT_COLUMNS."""
    return [
        [
            attempt.name.rpartition("/")[2],
            attempt.state,
            attempt.node,
            *map(timestamp, (attempt.create_time, attempt.start_time, attempt.end_time)),
            failure(attempt.failure),
        ]
        for attempt in attempts
    ]
