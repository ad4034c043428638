"""mvpctl get, list, events, attempts, artifacts, cancel, retry, delete"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.filter import add_filter, add_filter_of, filter_of
from mvprune.cli.shared.gates import print_gates
from mvprune.cli.shared.job_columns import columns, print_jobs
from mvprune.cli.shared.options import command_parser, connect, several_jobs_parser
from mvprune.cli.shared.output import Form, answer, job_with_result, print_job, print_result, print_table
from mvprune.cli.shared.several import Done, for_each
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import label, positive_number
from mvprune.client.display import COLUMNS, LIST_COLUMNS
from mvprune.client.models import JobChange
from mvprune.client.tables import (
    ARTIFACT_COLUMNS,
    ATTEMPT_COLUMNS,
    ATTEMPT_TIMES,
    EVENT_COLUMNS,
    QUEUE_COLUMNS,
    artifact_rows,
    attempt_rows,
    event_rows,
    queue_lines,
    queue_rows,
)

if TYPE_CHECKING:
    from mvprune.client.client import Client
    from mvprune.client.models import JobRecord, Queue

_LIST_EXAMPLE = """mvpctl list --state RUNNING --state QUEUED --label team=search
  mvpctl list --task squad --filter 'create_time > "2026-01-31T00:00:00Z" AND NOT labels:draft'
  mvpctl list --filter 'difference >= -0.01 AND duration < 3600' --order-by 'metric desc' --limit 10
  mvpctl list --filter 'failure = OUT_OF_MEMORY' --columns job,model,failure,labels"""


def get_command(argv: Sequence[str]) -> None:
    """Shows a job, and its result if it has one."""
    args = command_parser("get", "mvpctl get sst2-k3x9 -o json").parse_args(argv)
    with connect(args) as client:
        _show(client, client.get(args.job), args.form)


def _show(client: Client, job: JobRecord, form: Form) -> None:
    """Shows a job, and its result if it has one."""
    artifact = client.artifact(job.artifact) if job.artifact else None

    def text() -> None:
        print_job(job)
        if artifact:
            print_result(artifact)
        print_gates(job)

    answer(form, job_with_result(job, artifact), [job.id], text)


def list_command(argv: Sequence[str]) -> None:
    """Lists jobs."""
    parser = command_parser("list", _LIST_EXAMPLE, job=False)
    add_filter(parser)
    parser.add_argument(
        "--order-by",
        default="",
        metavar="FIELD",
        help="create_time, state, task, model, metric, difference, duration, failure or labels.KEY; 'FIELD desc' for "
        "descending; jobs without a value are last; default: 'create_time desc'",
    )
    parser.add_argument(
        "--columns",
        type=columns,
        metavar="NAMES",
        help=f"columns of the table, separated by commas: {', '.join(COLUMNS)}",
    )
    parser.add_argument("--limit", type=positive_number, default=50, metavar="N", help="at most N jobs; default 50")
    args = parser.parse_args(argv)
    if args.columns and not args.form.is_text:
        given = f"-o {args.form.output}, which has all fields" if args.form.is_data else "--quiet"
        raise UsageError(f"--columns must be used with a table, got {given}", parser.prog)
    with connect(args) as client:
        jobs = list(client.list(filter=filter_of(args), order_by=args.order_by, limit=args.limit))
    names, chosen = args.columns or LIST_COLUMNS, bool(args.columns)
    answer(args.form, jobs, [job.id for job in jobs], lambda: print_jobs(jobs, names, chosen=chosen))
    if len(jobs) == args.limit and not args.form.quiet:
        print(f"these are the first {args.limit}; raise --limit to list more", file=sys.stderr)


def queue_command(argv: Sequence[str]) -> None:
    """Shows the queue."""
    details = "AHEAD counts the jobs of all projects that come before and could start."
    parser = command_parser("queue", "mvpctl queue", details, job=False)
    parser.add_argument("--limit", type=positive_number, default=50, metavar="N", help="at most N jobs; default 50")
    args = parser.parse_args(argv)
    with connect(args) as client:
        queue = client.queue(limit=args.limit)
    answer(args.form, queue, [entry.job.rpartition("/")[2] for entry in queue.entries], lambda: _print_queue(queue))


def _print_queue(queue: Queue) -> None:
    for line in queue_lines(queue):
        print(line)
    print_table(QUEUE_COLUMNS, queue_rows(queue))


def events_command(argv: Sequence[str]) -> None:
    """Shows the audit trail."""
    args = command_parser("events", "mvpctl events sst2-k3x9").parse_args(argv)
    with connect(args) as client:
        events = list(client.events(args.job))
    answer(
        args.form,
        events,
        [str(event.sequence) for event in events],
        lambda: print_table(EVENT_COLUMNS, event_rows(events)),
    )


def attempts_command(argv: Sequence[str]) -> None:
    """Shows the attempts."""
    args = command_parser("attempts", "mvpctl attempts sst2-k3x9").parse_args(argv)
    with connect(args) as client:
        attempts = list(client.attempts(args.job))

    def text() -> None:
        print_table(ATTEMPT_COLUMNS, attempt_rows(attempts), expendable=(*ATTEMPT_TIMES, "NODE"))

    answer(args.form, attempts, [attempt.name for attempt in attempts], text)


def artifacts_command(argv: Sequence[str]) -> None:
    """Lists artifacts."""
    example = "mvpctl artifacts --filter 'task = sst2' --order-by 'expire_time'"
    details = "Lists artifacts, also those of deleted jobs. --quiet prints their names, which download takes."
    parser = command_parser("artifacts", example, details, job=False)
    add_filter_of(parser, "job, task, model, method, create_time, expire_time", "create_time or expire_time")
    args = parser.parse_args(argv)
    with connect(args) as client:
        artifacts = list(client.artifacts(filter=args.filter, order_by=args.order_by))

    def text() -> None:
        print_table(ARTIFACT_COLUMNS, artifact_rows(artifacts), expendable=("EXPIRES", "CREATED (UTC)", "DIFFERENCE"))

    answer(args.form, artifacts, [artifact.name for artifact in artifacts], text)


def update_command(argv: Sequence[str]) -> None:
    """Changes what people call a job and write about it."""
    example = "mvpctl update sst2-k3x9 --name 'first try' --label team=search --note 'the one to ship'"
    details = "A job can be changed in any state. A comment is added to its events: see mvpctl events."
    parser = command_parser("update", example, details)
    parser.add_argument("--name", help="a name for people; '' removes it")
    parser.add_argument(
        "--label",
        type=label,
        action="append",
        default=[],
        dest="labels",
        metavar="KEY=VALUE",
        help="add a label, or change its value; may be repeated",
    )
    parser.add_argument(
        "--remove-label", action="append", default=[], metavar="KEY", help="remove a label; may be repeated"
    )
    parser.add_argument("--note", metavar="TEXT", help="a note on the job, in place of the one it has; '' removes it")
    parser.add_argument("--comment", default="", metavar="TEXT", help="a comment, for the audit trail")
    args = parser.parse_args(argv)
    change = JobChange(set_labels=dict(args.labels), remove_labels=args.remove_label, comment=args.comment)
    if args.name is not None:
        change["display_name"] = args.name
    if args.note is not None:
        change["note"] = args.note
    if not any(change.values()) and args.name is None and args.note is None:
        raise UsageError("one of --name, --label, --remove-label, --note, --comment is required", parser.prog)
    with connect(args) as client:
        _show(client, client.update(args.job, **change), args.form)


def cancel_command(argv: Sequence[str]) -> ExitCode:
    """Asks for cancellation."""
    example = "mvpctl cancel sst2-k3x9 --reason 'wrong data'\n  mvpctl cancel sst2-k3x9 sst2-m4p2"
    parser = several_jobs_parser("cancel", example)
    parser.add_argument("--reason", default="", help="reason, for the audit trail")
    args = parser.parse_args(argv)
    with connect(args) as client:
        return for_each(args.jobs, client.project, args.form, lambda job: _moved(client.cancel(job, args.reason)))


def retry_command(argv: Sequence[str]) -> ExitCode:
    """Puts jobs back in the queue."""
    details = "A job goes on from its last checkpoint, with all its attempts and its time to run again."
    parser = several_jobs_parser("retry", "mvpctl retry sst2-k3x9\n  mvpctl retry sst2-k3x9 sst2-m4p2", details)
    parser.add_argument("--from-scratch", action="store_true", help="start from the beginning, without checkpoints")
    args = parser.parse_args(argv)

    def retry(job: str) -> Done:
        found = client.retry(job, from_scratch=args.from_scratch)
        for note in () if args.form.quiet else found.notes:
            print(clean(f"note: {found.id}: {note}"), file=sys.stderr)
        return _moved(found)

    with connect(args) as client:
        return for_each(args.jobs, client.project, args.form, retry)


def delete_command(argv: Sequence[str]) -> ExitCode:
    """Deletes jobs."""
    parser = several_jobs_parser("delete", "mvpctl delete sst2-k3x9\n  mvpctl delete sst2-k3x9 sst2-m4p2")
    args = parser.parse_args(argv)

    def delete(job: str) -> Done:
        client.delete(job)
        return Done(job, {"deleted": job}, f"job {job} deleted")

    with connect(args) as client:
        return for_each(args.jobs, client.project, args.form, delete)


def _moved(job: JobRecord) -> Done:
    return Done(job.id, job_with_result(job, None), f"job {job.id} is {job.state}")
