"""Creates the jobs of sweeps, a few at a time, and ends sweeps. db/expansion.py has the step."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable

from sqlalchemy.exc import IntegrityError

from mvprune_service.db import sweep_records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.expansion import expand
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.domain.leases import StaleLease

log = logging.getLogger(__name__)

_STEPS = 20  # of one sweep in a round: others have their turn then
_RECHECK_SECONDS = 10.0  # a sweep is stepped again even if nothing seems to have changed


class SweepController:
    """Takes every sweep that has not ended one step further in each round.

    Args:
        quota: of jobs in the queue, which counts the jobs of submissions too.
    """

    def __init__(self, db: Database, quota: QueueQuota) -> None:
        self._db = db
        self._quota = quota
        self._idle: dict[str, tuple[Hashable, float]] = {}  # uid to what it was like before a step, and when that was

    async def step(self) -> None:
        """One round over the sweeps."""
        errors: list[Exception] = []
        active = await self._db.read(sweep_records.active_sweeps)
        self._idle = {uid: self._idle[uid] for uid in active if uid in self._idle}
        for uid in active:
            try:
                await self._step_if_due(uid)
            except DatabaseUnavailable:
                raise
            except Exception as error:  # a sweep that fails holds up no other
                error.add_note(f"This was about the sweep with the uid {uid}.")
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("several sweeps", errors)

    async def _step_if_due(self, uid: str) -> None:
        """A step is a write, which reads all points: it is left out while it would change nothing."""
        now = time.monotonic()
        found = await self._db.read(sweep_records.unchanging, uid)
        known, since = self._idle.get(uid, (None, 0.0))
        if found is not None and found == known and now - since < _RECHECK_SECONDS:
            return
        await self._advance(uid)
        self._idle[uid] = found, now  # of before the step: what changed since then differs

    async def _advance(self, uid: str) -> None:
        for _ in range(_STEPS):
            try:
                has_more = await self._db.write(expand, uid, self._quota)
            except (
                IntegrityError,
                StaleLease,
            ) as error:  # another server created the same teacher or job, or was first
                log.info("a step of a sweep is repeated: %s", type(error).__name__)
                return
            if not has_more:
                return
