"""Follows the number of workers, from which the interval of their heartbeats and the length of leases come."""

from __future__ import annotations

from mvprune_service.clock import SECOND
from mvprune_service.db import overview
from mvprune_service.db.engine.database import Database
from mvprune_service.domain.pace import interval_seconds, lease_seconds
from mvprune_service.observability import metrics


class Pace:
    """The present answer to workers. Until the first step, there are no workers.

    Args:
        heartbeat_seconds: the interval while there are few workers; `lease_seconds` is the lease then.
    """

    def __init__(self, db: Database, *, heartbeat_seconds: float, lease_seconds: float) -> None:
        self._db = db
        self._interval = heartbeat_seconds
        self._lease = lease_seconds
        self._workers = 0

    async def step(self) -> None:
        """Counts the workers."""
        self._workers = await self._db.read(overview.running_attempts)
        metrics.lease_length.set(self.lease_seconds)

    @property
    def interval_seconds(self) -> float:
        """Between two heartbeats of a worker."""
        return interval_seconds(self._workers, self._interval)

    @property
    def lease_seconds(self) -> float:
        """The length of a lease."""
        return lease_seconds(self.interval_seconds, self._interval, self._lease)

    @property
    def lease_us(self) -> int:
        """The same in microseconds."""
        return int(self.lease_seconds * SECOND)

    @property
    def is_slowed(self) -> bool:
        """Whether there are so many workers that they report less often than the settings ask for."""
        return self.interval_seconds > self._interval
