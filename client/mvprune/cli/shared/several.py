"""Commands that take several jobs: each job is tried, whatever became of those before it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mvprune.cli.shared.errors import code_of, report
from mvprune.cli.shared.exit import ExitCode, worst
from mvprune.cli.shared.output import Form, answer, print_data
from mvprune.cli.shared.text import clean
from mvprune.client.names import job_name
from mvprune.common.exceptions import MvpruneError, ServerUnreachable, bad_field


class Done(NamedTuple):
    """The result of a command for a job.

    Attributes:
        job_id: what --quiet prints.
        value: for JSON and YAML.
        line: for people.
    """

    job_id: str
    value: Any
    line: str


def check_jobs(jobs: Sequence[str], project: str) -> None:
    """Refuses jobs that cannot be, before anything is done with others.

    Args:
        jobs: ids or names.
        project: of jobs that are given by id.

    Raises:
        InvalidArgument: one is malformed, or given more than once.
    """
    names = [job_name(job, project) for job in jobs]
    for job, name in zip(jobs, names, strict=True):
        name.encode()  # raises UnicodeEncodeError
        if names.count(name) > 1:
            raise bad_field("job", f"must be different jobs, got {job!r} more than once")


def for_each(jobs: Sequence[str], project: str, form: Form, act: Callable[[str], Done]) -> ExitCode:
    """Does something with each job, and answers. With several jobs, the errors of one do not keep the command from the
    others; but once no server answers, the others are not tried.

    Args:
        project: of jobs that are given by id.
        act: raises MvpruneError.

    Raises:
        MvpruneError: what `act` raises, of a single job.
        InvalidArgument: one of several is malformed, or given more than once.
    """
    if len(jobs) == 1:
        done = act(jobs[0])
        answer(form, done.value, [done.job_id], lambda: print(clean(done.line)))
        return ExitCode.OK
    check_jobs(jobs, project)
    values: list[Any] = []
    codes: list[ExitCode] = []
    for index, job in enumerate(jobs):
        try:
            done = act(job)
        except ServerUnreachable as error:
            codes.append(report(error, job))
            values.append(error_entry(job, error))
            left = jobs[index + 1 :]
            if left:
                print(clean(f"error: not tried: {', '.join(left)}"), file=sys.stderr)
            values += [error_entry(one, error) for one in left]
            break
        except MvpruneError as error:
            codes.append(report(error, job))
            values.append(error_entry(job, error))
        else:
            codes.append(ExitCode.OK)
            values.append(done.value)
            if not form.is_data:
                print(clean(done.job_id if form.quiet else done.line), flush=True)
    if form.is_data:
        print_data(values, form.output)
    return worst(codes)


def error_entry(job: str, error: MvpruneError) -> dict[str, Any]:
    """The JSON of a job that nothing else is known of."""
    return {"job": job, "error": str(error), "exit_code": int(code_of(error))}
