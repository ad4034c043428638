"""A job's trace: whose call made it is in its first event, so that later spans can belong to it."""

from __future__ import annotations

import re

from sqlalchemy import Connection, select

from mvprune.common.tracing import TRACEPARENT
from mvprune_service.api.access.peers import Origin, given_with
from mvprune_service.db.tables.jobs import EVENTS

_FORM = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def of_call(origin: Origin) -> str:
    """The traceparent that came with a call, "" if there is none."""
    given = given_with(origin, TRACEPARENT) or ""
    return given if _FORM.fullmatch(given) else ""


def of_job(conn: Connection, job_uid: str) -> str:
    """The traceparent of the call that made a job, "" if it had none."""
    first = select(EVENTS.c.details).where(EVENTS.c.job_uid == job_uid, EVENTS.c.sequence == 1)
    details: dict[str, str] = conn.execute(first).scalar() or {}
    return details.get(TRACEPARENT, "")
