"""GetQueue: what waits, behind how many, and what the cluster has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mvprune.v1 import job_pb2
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.names import parse_parent
from mvprune_service.api.messages.pagination import make_page, page_size, read_token
from mvprune_service.db import queue
from mvprune_service.db.engine.database import Database
from mvprune_service.executors.base import Capacity
from mvprune_service.ids import JobName


async def queue_page(
    db: Database, capacity: Callable[[], Awaitable[Capacity | None]], request: job_pb2.GetQueueRequest
) -> job_pb2.Queue:
    """The answer of GetQueue. Raises ApiError."""
    project, size = parse_parent(request.parent), page_size(request.page_size)
    after = read_token(request.page_token, int, str)
    rows = await db.read(queue.page_of_queue, project, after, size + 1)
    entries, token = make_page(rows, size, lambda row: _entry(project, row), lambda row: (row.rank_us, row.uid))
    load, there = await db.read(queue.load), await capacity()
    result = job_pb2.Queue(entries=entries, next_page_token=token, queued_jobs=load.queued, running_jobs=load.running)
    if there is not None:
        result.capacity.MergeFrom(
            job_pb2.Queue.Capacity(
                cpus=there.cpus,
                gpus=there.gpus,
                memory_bytes=there.memory_bytes,
                reserved_cpus=load.cpus,
                reserved_gpus=load.gpus,
                reserved_memory_bytes=load.memory_bytes,
            )
        )
    return result


def _entry(project: str, row: queue.Waiting) -> job_pb2.Queue.Entry:
    return job_pb2.Queue.Entry(
        job=str(JobName(project, row.job_id)),
        ahead=row.ahead,
        state_reason=row.state_reason,
        priority=row.priority,
        resources=job_pb2.ExecutionPolicy.FromString(row.policy).resources,
        create_time=mapping.timestamp(row.create_us),
        display_name=row.display_name,
    )
