"""Waiting for several jobs at once, with one display of their progress."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from mvprune.cli.shared.ended import Ended
from mvprune.cli.shared.errors import report
from mvprune.cli.shared.exit import ExitCode, worst
from mvprune.cli.shared.gates import gate_code
from mvprune.cli.shared.job_columns import OF_ENDS, print_jobs
from mvprune.cli.shared.live_jobs import live_jobs
from mvprune.cli.shared.options import connect_async
from mvprune.cli.shared.output import answer, job_with_result
from mvprune.cli.shared.several import check_jobs, error_entry
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.wait import Waiting
from mvprune.client.exceptions import JobError, WaitTimeout
from mvprune.common.exceptions import MvpruneError, ServerUnreachable

if TYPE_CHECKING:
    from mvprune.client.async_client import AsyncClient
    from mvprune.client.models import JobRecord

_AT_ONCE = 32  # jobs that are watched; servers limit the open streams of a caller


def finish_all(args: argparse.Namespace, waiting: Waiting) -> ExitCode:
    """Waits until all of `args.jobs` have ended, prints a table of them and writes the files that were asked for.

    Raises:
        InvalidArgument: a job is malformed, or given more than once.
        LocalRefusal: a file cannot be written.
    """
    try:
        with live_jobs(args.form.progress, len(args.jobs)) as progress:
            ended = asyncio.run(_wait_all(args, waiting.timeout, progress.show if progress else None))
    except KeyboardInterrupt:
        print(f"\ninterrupted; the jobs continue. To wait again: mvpctl wait {shlex.join(args.jobs)}", file=sys.stderr)
        raise
    known = [one.job for one in ended if one.job]
    values = [_entry(one) for one in ended]
    answer(args.form, values, [job.id for job in known], lambda: print_jobs(known, OF_ENDS) if known else None)
    sys.stdout.flush()
    code = _report(ended)
    if waiting.summary or waiting.junit:
        from mvprune.cli.shared.report import write_reports  # few need it

        write_reports(ended, waiting.summary, waiting.junit)
    return code


async def _wait_all(
    args: argparse.Namespace, seconds: float | None, show: Callable[[JobRecord], None] | None
) -> list[Ended]:
    deadline = None if seconds is None else time.monotonic() + seconds
    watched = asyncio.Semaphore(_AT_ONCE)
    async with connect_async(args) as client:
        check_jobs(args.jobs, client.project)

        async def wait(given: str) -> Ended:
            async with watched:
                return await _wait(client, given, seconds, deadline, show)

        return await asyncio.gather(*map(wait, args.jobs))


async def _wait(
    client: AsyncClient,
    given: str,
    seconds: float | None,
    deadline: float | None,
    show: Callable[[JobRecord], None] | None,
) -> Ended:
    """Waits for a job until the deadline, which is `seconds` after the command's start."""
    job: JobRecord | None = None
    try:
        job = await client.wait(given, None if deadline is None else max(0.0, deadline - time.monotonic()), show)
        return Ended(given, job, await client.artifact(job.artifact))
    except WaitTimeout as error:
        return Ended(given, error.job, error=WaitTimeout(error.job, seconds or 0))
    except JobError as error:
        return Ended(given, error.job, error=error)
    except MvpruneError as error:
        return Ended(given, job, error=error)


def _entry(ended: Ended) -> dict[str, Any]:
    if ended.job is not None:
        return job_with_result(ended.job, ended.artifact)
    return error_entry(ended.given, cast("MvpruneError", ended.error))


def _report(jobs: Sequence[Ended]) -> ExitCode:
    """Prints the errors and the missed gates; returns the exit code."""
    codes = []
    unreachable = [one for one in jobs if isinstance(one.error, ServerUnreachable)]
    for one in jobs:
        if isinstance(one.error, ServerUnreachable):
            codes.append(ExitCode.UNREACHABLE)
        elif one.error is not None:
            codes.append(report(one.error, one.given))
        elif one.job is not None:
            codes.append(gate_code(one.job))
    if unreachable and unreachable[0].error:
        report(unreachable[0].error)
        print(clean(f"error: not waited for: {', '.join(one.given for one in unreachable)}"), file=sys.stderr)
    return worst(codes)
