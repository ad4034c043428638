"""Heartbeats one at a time, and a pace that does not change."""

from __future__ import annotations

from mvprune_service.control.pace import Pace
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.heartbeats import Beat, Renewed, heartbeats
from mvprune_service.db.leases import Fence
from mvprune_service.domain.leases import StaleLease


def beat(tx: Tx, fence: Fence, *, progress: bytes | None, lease_us: int) -> Renewed:
    """Raises StaleLease."""
    (answer,) = heartbeats(tx, [Beat(fence, progress)], lease_us=lease_us)
    if isinstance(answer, StaleLease):
        raise answer
    return answer


def steady(db: Database, lease_seconds: float = 15) -> Pace:
    """That of few workers."""
    return Pace(db, heartbeat_seconds=1, lease_seconds=lease_seconds)
