"""How a server is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mvprune.client.convert import capacity, seconds_of, time_of
from mvprune.client.models import Capacity
from mvprune.v1 import admin_pb2


@dataclass(frozen=True)
class Quarantine:
    """Objects of the store that nothing refers to, and that are going to be deleted."""

    objects: int
    size_bytes: int  # of all of them
    artifacts: int  # how many of them are manifests of artifacts
    since: datetime | None  # when the first of them was found


@dataclass(frozen=True)
class ServerStatus:
    """A look inside. Ages are seconds; None where nothing waits or runs."""

    version: str
    start_time: datetime | None
    time: datetime | None  # the server's now
    database: str  # sqlite or postgresql
    schema_revision: str
    store: str
    executor: str
    capacity: Capacity | None  # None: the executor cannot be reached
    jobs: Mapping[str, int]  # by state
    oldest_queued_age: float | None
    live_attempts: int
    longest_heartbeat_age: float | None
    watchers: int  # streams open on this server
    quarantine: Quarantine | None  # None: the database does not answer
    problems: Mapping[str, str]  # part of the server: what is wrong with it now


def server_status(message: admin_pb2.ServerStatus) -> ServerStatus:
    """The model of a message."""
    return ServerStatus(
        version=message.version,
        start_time=time_of(message, "start_time"),
        time=time_of(message, "time"),
        database=message.database,
        schema_revision=message.schema_revision,
        store=message.store,
        executor=message.executor,
        capacity=capacity(message.capacity) if message.HasField("capacity") else None,
        jobs=dict(message.jobs),
        oldest_queued_age=seconds_of(message, "oldest_queued_age"),
        live_attempts=message.live_attempts,
        longest_heartbeat_age=seconds_of(message, "longest_heartbeat_age"),
        watchers=message.watchers,
        quarantine=_quarantine(message.quarantine) if message.HasField("quarantine") else None,
        problems=dict(message.problems),
    )


def _quarantine(message: admin_pb2.ServerStatus.Quarantine) -> Quarantine:
    return Quarantine(message.objects, message.size_bytes, message.artifacts, time_of(message, "since"))
