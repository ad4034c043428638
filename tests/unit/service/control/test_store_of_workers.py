"""The status names workers that cannot use the store."""

from __future__ import annotations

from tests.unit.service.conftest import Jobs
from tests.unit.service.plane import Plane, claim
from tests.waiting import until_seen

from mvprune_service.api.status import StatusReporter
from mvprune_service.db import leases
from mvprune_service.db.leases import WORKER
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.retries import Failure
from mvprune_service.observability.probes import Problems


async def problem(plane: Plane) -> str:
    """What a server that has just started says. A database that answers late is a problem too: it is asked again."""

    async def look() -> str:
        reporter = StatusReporter(plane.db, plane.store, plane.executor, Problems(), lambda: 0, plane.clock)
        return (await reporter.status()).problems.get("store of workers", "")

    return await until_seen(look, lambda seen: not seen.startswith("TimeoutError"))


async def test_workers_that_cannot_use_the_store_are_a_problem_for_an_hour(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    fence = await claim(plane, jobs)
    assert await problem(plane) == ""
    failure = Failure(FailureReason.STORE_UNAVAILABLE, "the artifact store is damaged: move away x")
    await plane.db.write(leases.fail_attempt, fence, failure, actor=WORKER)
    words = "WorkersWithoutStore: 1 attempt of the last hour ended; the last one: the artifact store is damaged"
    assert (await problem(plane)).startswith(words)
    plane.clock.pass_seconds(3601)
    assert await problem(plane) == ""
