"""Creates the jobs of sweeps, a few at a time, and ends sweeps. db/expansion.py has the step."""

from __future__ import annotations

import logging

from sqlalchemy.exc import IntegrityError

from mvprune_service.db import sweep_records
from mvprune_service.db.database import Database
from mvprune_service.db.expansion import expand
from mvprune_service.db.outages import DatabaseUnavailable
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.domain.leases import StaleLease

log = logging.getLogger(__name__)

_STEPS = 20  # of one sweep in a round: others have their turn then


class Expander:
    """Takes every sweep that has not ended one step further in each round.

    Args:
        quota: of jobs in the queue, which counts the jobs of submissions too.
    """

    def __init__(self, db: Database, quota: QueueQuota) -> None:
        self._db = db
        self._quota = quota

    async def step(self) -> None:
        """One round over the sweeps."""
        errors: list[Exception] = []
        for uid in await self._db.read(sweep_records.active_sweeps):
            try:
                await self._advance(uid)
            except DatabaseUnavailable:
                raise
            except Exception as error:  # a sweep that fails holds up no other
                error.add_note(f"This was about the sweep with the uid {uid}.")
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("several sweeps", errors)

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
