"""Tools that read and change jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from mvprune.client.convert import job_fields
from mvprune.client.display import details, state, steps
from mvprune.client.models import JobRecord
from mvprune.common.exceptions import bad_field
from mvprune.mcp.arguments import flag, table, text, texts, whole
from mvprune.mcp.job_facts import JobFacts, JobRow, facts_of, job_of, job_table, row_of
from mvprune.mcp.pages import PAGE, Fetch, more, of_server, page
from mvprune.mcp.tool import Answer, Call, Tool
from mvprune.v1 import job_pb2

JOB = text("a job's id, or its name projects/P/jobs/J", required=True)
SECONDS = whole("how long to wait at most; call again to go on", 1, 600, 60)


@dataclass(frozen=True)
class JobList:
    """A page of jobs. `next_page` is `page` of the next one, "" at the end."""

    jobs: list[JobRow]
    next_page: str


@dataclass(frozen=True)
class Deleted:
    """What was deleted."""

    deleted: str


def jobs_of(call: Call, filter: str, order_by: str) -> Fetch[JobRecord]:
    """The project's jobs."""
    transport = call.client._transport
    request = job_pb2.ListJobsRequest(parent=f"projects/{call.client.project}", filter=filter, order_by=order_by)
    return of_server(
        transport, transport.jobs.ListJobs, request, "jobs", lambda message: JobRecord(**job_fields(message))
    )


async def followed(call: Call, found: Any, line: Callable[[Any], str]) -> Any:
    """A job or a sweep once it has ended, or once the time of the call is over. Each of its updates is reported to the
    caller as a line."""
    if found.state.is_terminal:
        return found
    started, total = time.monotonic(), float(call.given["seconds"])

    async def follow() -> None:
        async with aclosing(found.watch()) as updates:
            async for update in updates:
                await call.tell(time.monotonic() - started, total, line(update))

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(follow(), total)
    return await found.refresh()


def as_followed(facts: Any, shown: str) -> Answer:
    """The answer with what was followed, which may go on."""
    return Answer(shown if facts.done else f"it has not ended; call again to go on\n{shown}", facts)


async def _list(call: Call) -> Answer:
    given = call.given
    words = given.get("text", "").casefold()

    def fits(job: JobRecord) -> bool:
        """Whether the text is in a name, the model, the task, the method or a label."""
        spec, labels = job.spec, (f"{key}={value}" for key, value in job.labels.items())
        return words in " ".join((job.id, job.display_name, spec.model, spec.task, spec.method, *labels)).casefold()

    fetch = jobs_of(call, given.get("filter", ""), given.get("order_by", ""))
    jobs, after = await page(fetch, given.get("page", ""), given["limit"], fits)
    shown = job_table(jobs) if jobs else "no jobs"
    return Answer(shown + more(after), JobList([JobRow(**row_of(job)) for job in jobs], after))


async def _get(call: Call) -> Answer:
    facts, shown = await facts_of(call, await job_of(call, call.given["job"]))
    return Answer(shown, facts)


async def _watch(call: Call) -> Answer:
    job = await followed(call, await job_of(call, call.given["job"]), lambda update: _line(update.job))
    return as_followed(*await facts_of(call, job))


def _line(job: JobRecord) -> str:
    """RUNNING, pruning 120/400, loss 0.4312"""
    return ", ".join(filter(None, (state(job), steps(job.progress), details(job.progress))))


async def _update(call: Call) -> Answer:
    change: Any = {name: value for name, value in call.given.items() if name != "job"}
    if not change:
        raise bad_field("note", "must be given, or another change, got nothing")
    job = await call.client.update(call.given["job"], **change)
    return Answer(f"job {job.id} is updated", JobRow(**row_of(job)))


async def _cancel(call: Call) -> Answer:
    job = await call.client.cancel(call.given["job"], call.given.get("reason", ""))
    return Answer(f"job {job.id} is {job.state}", JobRow(**row_of(job)))


async def _retry(call: Call) -> Answer:
    job = await call.client.retry(call.given["job"], from_scratch=call.given["from_scratch"])
    return Answer(f"job {job.id} is {job.state}", JobRow(**row_of(job)))


async def _delete(call: Call) -> Answer:
    job = await job_of(call, call.given["job"])
    await job.delete()
    return Answer(f"job {job.id} is deleted; its artifact is kept", Deleted(job.name))


TOOLS = (
    Tool(
        "list_jobs",
        "Search jobs",
        "Searches the project's jobs, the newest first. One line a job; get_job has all of one.",
        {
            "filter": text(
                'such as \'state = RUNNING AND (task = "squad" OR labels.team = "search")\'; fields: state, task, '
                "model, method, display_name, creator, sweep, failure, priority, metric, difference, duration, "
                "create_time, end_time, labels.KEY; metrics and differences are fractions, durations seconds"
            ),
            "text": text("only jobs with this text in their names, model, task, method or labels"),
            "order_by": text(
                "create_time, state, task, model, metric, difference, duration, failure or labels.KEY; "
                "with ' desc' for descending"
            ),
            "limit": whole("jobs at most", 1, 100, 20),
            "page": PAGE,
        },
        JobList,
        _list,
    ),
    Tool(
        "get_job",
        "Show a job",
        "Shows a job: state, progress, why it waits or failed and what to do about it, its result, gates and newest "
        "events. read_log has what its worker wrote.",
        {"job": JOB},
        JobFacts,
        _get,
    ),
    Tool(
        "watch_job",
        "Wait for a job",
        "Waits until a job has ended, or the seconds are over, with notifications of progress. Answers as get_job; "
        "`done` says whether it has ended.",
        {"job": JOB, "seconds": SECONDS},
        JobFacts,
        _watch,
    ),
    Tool(
        "update_job",
        "Write about a job",
        "Changes a job's name, labels and note, in any state, and adds a comment to its events.",
        {
            "job": JOB,
            "display_name": text("a name for people"),
            "note": text("what is to be remembered of it, in place of the note that it has"),
            "comment": text("is added to its events"),
            "set_labels": table("labels with their values, which are added or changed"),
            "remove_labels": texts("keys of labels"),
        },
        JobRow,
        _update,
        changes=True,
        repeatable=False,
    ),
    Tool(
        "cancel_job",
        "Cancel a job",
        "Cancels a job that has not ended. retry_job lets it go on from its last checkpoint.",
        {"job": JOB, "reason": text("why, for its audit trail")},
        JobRow,
        _cancel,
        changes=True,
    ),
    Tool(
        "retry_job",
        "Retry a job",
        "Puts a FAILED or CANCELLED job back into the queue. It goes on from its last checkpoint.",
        {"job": JOB, "from_scratch": flag("start from the beginning, without checkpoints")},
        JobRow,
        _retry,
        changes=True,
        repeatable=False,
    ),
    Tool(
        "delete_job",
        "Delete a job",
        "Deletes a job that has ended, with its log and metrics, for ever. Its artifact is kept.",
        {"job": JOB},
        Deleted,
        _delete,
        changes=True,
        destroys=True,
        repeatable=False,
    ),
)
