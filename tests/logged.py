"""A job that logs, and readers of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from mvprune.v1 import job_pb2
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.log_reader import LogReader
from mvprune_service.changes import Changes
from mvprune_service.clock import SECOND
from mvprune_service.db import attempt_logs, leases
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.attempts import LOG_CHUNKS, LOGS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure
from mvprune_service.stores.base import BlobStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.service.conftest import Jobs


def lines(count: int) -> bytes:
    """So many lines of a log, about 30 bytes each."""
    return b"".join(b"step %d: loss %.6f\n" % (number, 1 / (number + 1)) for number in range(count))


class Logged:
    """A RUNNING attempt, and a server's reader."""

    def __init__(self, db: Database, store: BlobStore, fence: Fence, attempt_uid: str) -> None:
        self.fence, self.attempt_uid, self.name = fence, attempt_uid, str(fence.attempt)
        self.sent = 0
        self._db = db
        changes = Changes()
        db.on_commit = changes.announce
        self.reader = LogReader(db, store)
        self.servicer = JobServicer(db, changes, Feeds(db, changes), None, self.reader)  # type: ignore[arg-type]

    @classmethod
    async def start(cls, db: Database, store: BlobStore, jobs: Jobs, job_id: str = "a") -> Logged:
        """A new job that runs."""
        uid = await jobs.create(job_id, max_attempts=1)
        await db.write(leases.schedule, uid, Reserved(1, 0, 0), executor="scripted", start_timeout_us=60 * SECOND)
        live = await jobs.live(job_id)
        fence = Fence(live.name, live.attempt.fencing_token)
        await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=3600 * SECOND)
        return cls(db, store, fence, live.attempt.uid)

    async def append(self, data: bytes) -> None:
        """What AppendLogs does."""

        def work(tx: Tx) -> int:
            _, attempt = leases.fenced(tx, self.fence)
            return attempt_logs.append_log(tx, attempt, self.sent, data)

        self.sent = await self._db.write(work)

    async def end(self) -> None:
        """The attempt fails, and the job with it."""
        await self._db.write(leases.fail_attempt, self.fence, Failure(FailureReason.NAN_LOSS), actor="worker")

    def follow(
        self, offset: int = 0, *, follow: bool = True, tail_lines: int = 0
    ) -> AsyncIterator[job_pb2.FollowLogsResponse]:
        """FollowLogs."""
        request = job_pb2.FollowLogsRequest(attempt=self.name, offset=offset, follow=follow, tail_lines=tail_lines)
        return self.servicer.FollowLogs(request, None)  # type: ignore[arg-type]

    async def read(self, offset: int = 0, *, follow: bool = False) -> bytes:
        """The log from `offset` to its end. Every message begins where the one before ended."""
        read = b""
        async for message in self.follow(offset, follow=follow):
            assert message.offset == offset + len(read)
            assert len(message.data) <= 64 << 10
            read += message.data
        assert message.end
        return read

    async def rows(self) -> bytes:
        """What the database has of the log."""
        found = select(LOGS.c.data).where(LOGS.c.attempt_uid == self.attempt_uid).order_by(LOGS.c.offset)
        return b"".join(await self._db.read(lambda conn: conn.execute(found).scalars().all()))

    async def chunk_uids(self) -> list[str]:
        """The chunks that the database knows."""
        found = select(LOG_CHUNKS.c.uid).where(LOG_CHUNKS.c.attempt_uid == self.attempt_uid)
        return list(await self._db.read(lambda conn: conn.execute(found.order_by(LOG_CHUNKS.c.offset)).scalars().all()))
