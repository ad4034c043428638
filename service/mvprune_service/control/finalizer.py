"""FINALIZING → SUCCEEDED: an artifact is published only after each of its files was read back and hashed, and only if
it satisfies the gates that have fail_job."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from mvprune.common import tracing
from mvprune.v1 import artifact_pb2
from mvprune_service.control.loop import for_each
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.attempts import Live
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.leases import StaleLease
from mvprune_service.domain.retries import Failure
from mvprune_service.observability import traces
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import ArtifactCorrupt, manifest_key, verify

log = logging.getLogger(__name__)

ACTOR = "finalizer"


class Finalizer:
    """Verifies offered artifacts. They wait while the store does not answer."""

    def __init__(self, db: Database, store: BlobStore) -> None:
        self._db = db
        self._store = store

    async def step(self) -> None:
        """One round over attempts with a result."""
        await for_each(await self._db.read(records.offered_attempts), self._traced, (StoreUnavailable,))

    async def _traced(self, live: Live) -> None:
        parent = await self._db.read(traces.of_job, live.job.uid)
        try:
            with tracing.span("finalize", parent, attempt=str(live.name)):
                await self._finalize(live)
        except StaleLease:
            pass  # another server finished it meanwhile

    async def _finalize(self, live: Live) -> None:
        sha256 = live.attempt.manifest_sha256
        if sha256 is None:
            return
        try:
            manifest = await asyncio.to_thread(verify, self._store, sha256)
            _check(manifest)
            size = await asyncio.to_thread(self._store.size, manifest_key(sha256))
        except ArtifactCorrupt as error:
            fence = Fence(live.name, live.attempt.fencing_token)
            failure = Failure(FailureReason.ARTIFACT_CORRUPT, str(error))
            await self._db.write(leases.fail_attempt, fence, failure, actor=ACTOR)
            return
        if await self._db.write(leases.publish, live.job.uid, live.attempt.uid, manifest, size or 0):
            log.info("%s published artifact %s", live.name, sha256)


def _check(manifest: dict[str, Any]) -> None:
    """Raises ArtifactCorrupt unless the manifest, which a worker made, has what the service shows of an artifact."""
    try:
        json.dumps(manifest, allow_nan=False)  # PostgreSQL stores no NaN
        artifact_pb2.Artifact(
            metrics=dict(manifest["metrics"]),
            primary_metric=manifest["primary_metric"],
            accounting=artifact_pb2.Accounting(**manifest["accounting"]),
            files=[artifact_pb2.ArtifactFile(**file) for file in manifest["files"]],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactCorrupt(f"the manifest is not that of an artifact: {error!r:.200}") from None
