"""What tools say about jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from mvprune.client.display import (
    COLUMNS,
    RESULT_COLUMNS,
    advice,
    fields,
    gate_rows,
    result_rows,
    state,
    transition,
)
from mvprune.client.job import AsyncJob
from mvprune.client.models import Artifact, JobRecord
from mvprune.common.exceptions import FailedPrecondition, bad_field
from mvprune.common.units import age, duration, timestamp
from mvprune.mcp.tool import Call
from mvprune.mcp.words import pairs, table

_EVENTS = 5  # the newest, beside a job
_LISTED = (
    *("job", "state", "progress", "model", "task", "method", "density", "metric", "difference"),
    *("failure", "name", "labels", "age"),
)
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class ProgressFacts:
    """Where a job is; `density` is the fraction of the prunable weights that is kept now."""

    phase: str
    step: int
    total_steps: int
    density: float
    loss: float | None
    eta_seconds: float | None


@dataclass(frozen=True)
class GateFacts:
    """A gate: what was asked and observed; `passed` is null where it was not evaluated."""

    gate: str
    observed: str
    passed: bool | None


@dataclass(frozen=True)
class EventFacts:
    """An entry of a job's audit trail."""

    time: str
    type: str
    change: str
    actor: str


@dataclass(frozen=True)
class JobRow:
    """A job in a list. `density` is the fraction of the prunable weights that is asked for; metrics are fractions."""

    job: str
    state: str
    why: str
    model: str
    task: str
    method: str
    density: float
    metric: float | None
    difference: float | None
    failure: str
    display_name: str
    sweep: str


@dataclass(frozen=True)
class JobFacts(JobRow):
    """A job. `done`: it has ended; `why`: why it waits, or what it waits for; `advice`: what to do about a failure."""

    done: bool
    advice: str
    progress: ProgressFacts | None
    primary_metric: str
    duration_seconds: float | None
    gates: list[GateFacts]
    labels: Mapping[str, str]
    note: str
    notes: list[str]
    attempt: int
    heartbeat_age_seconds: float | None
    artifact: str
    metrics: Mapping[str, float]
    events: list[EventFacts]


def row_of(job: JobRecord) -> dict[str, Any]:
    """The fields of a `JobRow`."""
    return {
        "job": job.id,
        "state": str(job.state),
        "why": "" if state(job) == job.state else state(job),
        "model": job.spec.model,
        "task": job.spec.task,
        "method": job.spec.method,
        "density": job.spec.target_density,
        "metric": job.metric,
        "difference": job.difference,
        "failure": f"{job.failure.reason}: {job.failure.message}" if job.failure else "",
        "display_name": job.display_name,
        "sweep": job.sweep,
    }


def job_table(jobs: Sequence[JobRecord]) -> str:
    """Jobs, one a line."""
    columns = [COLUMNS[name] for name in _LISTED]
    return table([column.heading for column in columns], [[column.cell(job) for column in columns] for job in jobs])


async def job_of(call: Call, name: str) -> AsyncJob:
    """A job by its id or name. Raises NotFound."""
    return await call.client.get(name)


async def facts_of(call: Call, job: JobRecord) -> tuple[JobFacts, str]:
    """All that matters of a job, as data and as text."""
    events = await newest(call.client.events(job), _EVENTS)
    beat = await _last_heartbeat(call, job)
    beat_age = None if beat is None else max(0.0, (datetime.now(UTC) - beat).total_seconds())
    artifact = await _artifact(call, job)
    gates = [GateFacts(*row) for row in gate_rows(job)]
    progress = job.progress
    facts = JobFacts(
        **row_of(job),
        done=job.state.is_terminal,
        advice=advice(job),
        progress=None
        if progress is None or job.state.is_terminal
        else ProgressFacts(
            progress.phase, progress.step, progress.total_steps, progress.density, progress.loss, progress.eta
        ),
        primary_metric=job.primary_metric,
        duration_seconds=job.duration,
        gates=gates,
        labels=dict(job.labels),
        note=job.note,
        notes=list(job.notes),
        attempt=job.attempt,
        heartbeat_age_seconds=beat_age,
        artifact=job.artifact,
        metrics=dict(artifact.metrics) if artifact else {},
        events=[EventFacts(timestamp(one.time), one.type, transition(one), one.actor) for one in events],
    )
    return facts, _text(job, facts, artifact, beat)


def _text(job: JobRecord, facts: JobFacts, artifact: Artifact | None, beat: datetime | None) -> str:
    heard = f"{age(beat)} ago" if beat and not facts.done else ""
    took = duration(job.duration) if job.duration is not None else ""
    parts = [pairs([*fields(job), ("last heartbeat of its worker", heard), ("took", took)])]
    if artifact is not None:
        parts.append(table(RESULT_COLUMNS, result_rows(artifact)))
    if facts.gates:
        words = {True: "passed", False: "missed", None: "not evaluated"}
        parts.append(
            table(["GATE", "OBSERVED", ""], [[one.gate, one.observed, words[one.passed]] for one in facts.gates])
        )
    rows = [[one.time, one.type, one.change, one.actor] for one in facts.events]
    parts.append(table(["EVENT (UTC)", "", "", "BY"], rows))
    return "\n\n".join(parts)


async def newest(found: AsyncGenerator[_Item, None], count: int) -> list[_Item]:
    """The last items of a list that begins with the oldest."""
    async with aclosing(found) as items:
        kept: deque[_Item] = deque(maxlen=count)
        async for one in items:
            kept.append(one)
    return list(kept)


def check_several(field: str, given: Sequence[str], least: int, most: int) -> None:
    """Raises InvalidArgument for too few or too many."""
    if not least <= len(given) <= most:
        raise bad_field(field, f"must have from {least} to {most}, got {len(given)}")


async def _last_heartbeat(call: Call, job: JobRecord) -> datetime | None:
    if not job.attempt:
        return None
    last = await newest(call.client.attempts(job), 1)
    return last[0].last_heartbeat_time if last else None


async def _artifact(call: Call, job: JobRecord) -> Artifact | None:
    if not job.artifact:
        return None
    try:
        return await call.client.artifact(job.artifact)
    except FailedPrecondition:
        return None
