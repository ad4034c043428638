"""mvpctl watch, wait, logs"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli._live import live
from mvprune.cli._options import command_parser, connect, job_goes_on, number
from mvprune.cli._output import print_json, print_result
from mvprune.cli._text import transition
from mvprune.cli._wait import finish

if TYPE_CHECKING:
    from mvprune._models import JobEvent


def watch_command(argv: Sequence[str]) -> None:
    """Shows changes as they come, then the result."""
    details = "The exit code tells how it ended. With -o json, one update a line: sequence, job, events, done."
    args = command_parser("watch", "mvpctl watch sst2-k3x9", details).parse_args(argv)
    with connect(args) as client, job_goes_on(args.job):
        if args.output == "json":
            for update in client.watch(args.job):
                print_json(update, one_line=True)
        else:
            with live(sys.stdout) as progress:
                for update in client.watch(args.job):
                    for event in update.events:
                        progress.note(_event_line(event))
                    progress.show(update.job)
        artifact = client.artifact(args.job)  # raises if the job ended without one
    if args.output == "text":
        print_result(artifact)


def wait_command(argv: Sequence[str]) -> None:
    """Waits for the end."""
    details = "0: it SUCCEEDED; 3: it FAILED; 4: it was CANCELLED; 6: --timeout passed and the job goes on."
    parser = command_parser("wait", "mvpctl wait sst2-k3x9 --timeout 600", details)
    parser.add_argument("--timeout", type=number, metavar="SECONDS", help="stop waiting after this")
    args = parser.parse_args(argv)
    with connect(args) as client:
        finish(client, args.job, args.timeout, None, args.output)


def logs_command(argv: Sequence[str]) -> None:
    """Prints the log as it is."""
    parser = command_parser("logs", "mvpctl logs -f sst2-k3x9", output=False)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    args = parser.parse_args(argv)
    with connect(args) as client, job_goes_on(args.job):
        for data in client.logs(args.job, follow=args.follow):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _event_line(event: JobEvent) -> str:
    time = f"{event.time:%H:%M:%S}" if event.time else ""
    return "  ".join(filter(None, (time, event.type, transition(event), event.actor)))
