"""The stream of the jobs of a project that change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from mvprune.v1 import job_pb2
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.filters import Clause
from mvprune_service.changes import Changes
from mvprune_service.db import records
from mvprune_service.db.engine.database import Database

_GATHER_SECONDS = 0.2  # changes of this time come together
_KNOWN = 10_000  # jobs that a stream remembers


class ProjectFeed:
    """What one stream knows.

    Args:
        wanted: the condition of a filter; None: all jobs.
    """

    def __init__(self, db: Database, changes: Changes, project: str, wanted: Clause | None) -> None:
        self._db = db
        self._changes = changes
        self._project = project
        self._wanted = wanted
        self._sent: dict[str, tuple[str, int]] = {}  # by uid: the name and the version of a job that was sent
        self._others = set[str]()  # uids of jobs that do not match, which was said

    async def responses(self) -> AsyncIterator[job_pb2.WatchJobsResponse]:
        """The responses of WatchJobs, without end."""
        with self._changes.gathered() as gathered:
            yield job_pb2.WatchJobsResponse()
            while True:
                await gathered.changed.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                uids = gathered.take()
                response = await self._response(uids) if uids is not None else job_pb2.WatchJobsResponse(missed=True)
                if response.ByteSize():
                    yield response

    async def _response(self, uids: Collection[str]) -> job_pb2.WatchJobsResponse:
        found = await self._db.read(records.changed_jobs, self._project, uids, self._wanted)
        response = job_pb2.WatchJobsResponse()
        for row in found.matching:
            name = str(row.name)
            if self._sent.get(row.uid) != (name, row.version):  # more lines of its log do not change a job
                response.jobs.append(mapping.job(row))
                self._sent[row.uid] = name, row.version
            self._others.discard(row.uid)
        for uid, job in found.others.items():  # the client may have listed it before it changed
            self._sent.pop(uid, None)
            if uid not in self._others:
                response.removed.append(str(job))
                self._others.add(uid)
        for uid in found.gone:
            self._others.discard(uid)
            if known := self._sent.pop(uid, None):
                response.removed.append(known[0])
            else:
                response.missed = True
        for remembered in (self._sent, self._others):
            if len(remembered) > _KNOWN:
                remembered.clear()
        return response
