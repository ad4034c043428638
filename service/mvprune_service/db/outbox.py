"""Writes deliveries to webhooks in the transaction of the event: an event and its deliveries are there together, or
neither is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Insert, Query
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.db.tables.sweeps import SweepRow
from mvprune_service.db.tables.webhooks import DELIVERIES, WEBHOOKS, DeliveryRow, ListeningRow
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.webhooks import (
    GIVE_UP_US,
    DeliveryState,
    Event,
    WebhookState,
    job_types,
    sweep_types,
    wanted,
)

_LISTENING = Query(
    ListeningRow,
    select(WEBHOOKS.c.uid, WEBHOOKS.c.events, WEBHOOKS.c.labels).where(
        WEBHOOKS.c.project == bindparam("in_project"), WEBHOOKS.c.state == bindparam("enabled")
    ),
)
_INSERT_DELIVERY = Insert(DeliveryRow, DELIVERIES)


def job_moved(
    tx: Tx, job: JobRow, sequence: int, source: JobState | None, target: JobState, values: Mapping[str, Any]
) -> None:
    """An event of a job.

    Args:
        job: before the change.
        source: its state before; None: it was created.
        values: columns that change with it.
    """
    reason = values.get("failure_reason")
    types = job_types(source, target, reason)
    listening = _listening(tx, job.project) if types else ()
    if not listening:
        return
    data = {
        "name": str(job.name),
        "uid": job.uid,
        "display_name": job.display_name,
        "state": target.value,
        "from_state": source and source.value,
        "reason": reason.value if reason else values.get("state_reason", job.state_reason),
        "sequence": sequence,
        "attempt": values.get("attempt", job.attempt),
        "task": job.task,
        "sweep": f"projects/{job.project}/sweeps/{job.sweep_id}" if job.sweep_id else None,
        **_result(values),
    }
    _announce(tx, listening, Event(types, job.project, str(job.name), job.uid, sequence, job.labels, data))


def sweep_changed(tx: Tx, sweep: SweepRow, sequence: int, values: Mapping[str, Any]) -> None:
    """An event of a sweep; `sweep` is as before the change, `values` are columns that change with it."""
    source, target = sweep.state if sweep.last_sequence else None, values.get("state", sweep.state)
    types = sweep_types(source, target)
    listening = _listening(tx, sweep.project) if types else ()
    if not listening:
        return
    data = {
        "name": str(sweep.name),
        "uid": sweep.uid,
        "display_name": sweep.display_name,
        "state": target.value,
        "from_state": source and source.value,
        "reason": values.get("state_reason", sweep.state_reason),
        "sequence": sequence,
    }
    _announce(tx, listening, Event(types, sweep.project, str(sweep.name), sweep.uid, sequence, sweep.labels, data))


def _result(values: Mapping[str, Any]) -> dict[str, Any]:
    """The metric of a job that has succeeded, as far as it is known and is a number that JSON has."""
    found = {name: values.get(name) for name in ("primary_metric", "metric", "difference")}
    return {
        name: value
        for name, value in found.items()
        if value is not None and (not isinstance(value, float) or math.isfinite(value))
    }


def _listening(tx: Tx, project: str) -> Sequence[ListeningRow]:
    return _LISTENING.all(tx.conn, {"in_project": project, "enabled": WebhookState.ENABLED})


def _announce(tx: Tx, listening: Sequence[ListeningRow], event: Event) -> None:
    for webhook in listening:
        name = wanted(webhook.events, webhook.labels, event)
        if name is None:
            continue
        row = {
            "webhook_uid": webhook.uid,
            "event_id": f"{event.uid}-{event.sequence}",
            "type": name,
            "subject": event.subject,
            "subject_uid": event.uid,
            "sequence": event.sequence,
            "data": dict(event.data),
            "state": DeliveryState.PENDING,
            "attempts": 0,
            "error": "",
            "create_us": tx.now,
            "until_us": tx.now + GIVE_UP_US,
        }
        _INSERT_DELIVERY(tx.conn, row)
