"""mvpctl watch, wait, logs"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.gates import gate_code, print_gates, print_outcome
from mvprune.cli.shared.live import live
from mvprune.cli.shared.options import command_parser, connect, job_goes_on, several_jobs_parser
from mvprune.cli.shared.output import print_data
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import duration, positive_number
from mvprune.cli.shared.wait import Waiting, add_waiting, finish, print_end
from mvprune.client.display import transition

if TYPE_CHECKING:
    from mvprune.client.models import JobEvent


def watch_command(argv: Sequence[str]) -> ExitCode:
    """Shows changes as they come, then the result."""
    details = "The exit code reports how the job ended. JSON has one update per line: sequence, job, events, done."
    args = command_parser("watch", "mvpctl watch sst2-k3x9", details).parse_args(argv)
    with connect(args) as client, job_goes_on(args.job):
        if args.form.is_data:
            for update in client.watch(args.job):
                print_data(update, args.form.output, one_of_many=True)
        else:
            with live(args.form.progress) as progress:
                for update in client.watch(args.job):
                    for event in update.events:
                        progress.note(_event_line(event))
                    progress.show(update.job)
        job = client.get(args.job)
        if args.form.is_text and not job.artifact:
            print_gates(job)
            print_end(job)
        artifact = client.artifact(job.artifact or job)  # raises if the job ended without one
    if args.form.is_text:
        print_outcome(job, artifact)
        print_end(job)
    return gate_code(job)


def wait_command(argv: Sequence[str]) -> ExitCode:
    """Waits for the end of one or several jobs."""
    details = (
        "0: it SUCCEEDED; 3: it FAILED; 4: it was CANCELLED; 5: its result misses a gate; 6: --timeout has passed and "
        "the job continues. The --timeout is for all jobs together."
    )
    example = "mvpctl wait sst2-k3x9 --timeout 600 --junit gates.xml\n  mvpctl wait sst2-k3x9 sst2-m4p2"
    parser = several_jobs_parser("wait", example, details)
    add_waiting(parser.add_argument_group("waiting"))
    args = parser.parse_args(argv)
    waiting = Waiting(args.timeout, summary=args.summary, junit=args.junit)
    waiting.check()
    if len(args.jobs) > 1:
        from mvprune.cli.shared.wait_jobs import finish_all  # asyncio is slow to import

        return finish_all(args, waiting)
    with connect(args) as client:
        return finish(client, args.jobs[0], waiting, args.form)


def logs_command(argv: Sequence[str]) -> None:
    """Prints the log as it is, or a document for each of its lines."""
    example = "mvpctl logs -f sst2-k3x9\n  mvpctl logs sst2-k3x9 --search nan --since 2h"
    details = "JSON has one line of the log per line: text, and with --search or --since also offset and time."
    parser = command_parser("logs", example, details)
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until the job ends")
    parser.add_argument("--tail", type=positive_number, metavar="N", help="begin with the last N lines")
    parser.add_argument(
        "--search",
        metavar="TEXT",
        help="only lines with this text, whatever its case; of each its first 4,096 characters",
    )
    parser.add_argument("--since", type=duration, metavar="TIME", help="only lines of the last 90s, 15m, 2h or 7d")
    args = parser.parse_args(argv)
    chosen = args.search is not None or args.since is not None
    if chosen and (args.follow or args.tail):
        raise UsageError("--search and --since must be used without --follow and --tail", parser.prog)
    with connect(args) as client, job_goes_on(args.job):
        if chosen:
            since = datetime.now(UTC) - timedelta(seconds=args.since) if args.since is not None else None
            for line in client.search_logs(args.job, args.search or "", since=since):
                if args.form.is_data:
                    print_data(line, args.form.output, one_of_many=True)
                else:
                    print(clean(line.text))
            return
        pieces = client.logs(args.job, follow=args.follow, tail=args.tail or 0)
        if args.form.is_data:
            for text in _lines(pieces):
                print_data({"offset": None, "text": text, "time": None}, args.form.output, one_of_many=True)
            return
        for data in pieces:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a log, without their ends, as soon as each is complete. What is no UTF-8 is replaced."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def _event_line(event: JobEvent) -> str:
    time = f"{event.time:%H:%M:%S}" if event.time else ""
    return "  ".join(filter(None, (time, event.type, transition(event), event.actor)))
