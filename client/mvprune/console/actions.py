"""What users change."""

from __future__ import annotations

from starlette.responses import Response

from mvprune.console.visit import Visit


async def cancel(visit: Visit) -> Response:
    """Cancels a job."""
    await visit.calls.cancel(visit.job, visit.given("reason"))
    return visit.go(visit.path("jobs", visit.request.path_params["job"]))


async def retry(visit: Visit) -> Response:
    """Puts a job back into the queue."""
    await visit.calls.retry(visit.job, from_scratch=bool(visit.given("from_scratch")), etag=visit.given("etag"))
    return visit.go(visit.path("jobs", visit.request.path_params["job"]))


async def delete(visit: Visit) -> Response:
    """Deletes a job that has ended."""
    await visit.calls.delete(visit.job, etag=visit.given("etag"))
    return visit.go(visit.path("jobs"))
