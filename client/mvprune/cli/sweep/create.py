"""mvpctl sweep create"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.options import connect
from mvprune.cli.shared.output import answer, print_data
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.uploads import sending
from mvprune.cli.sweep.follow import finish
from mvprune.cli.sweep.parser import create_parser
from mvprune.cli.sweep.submission import submission
from mvprune.spec.sweep_choices import TicketStrategy
from mvprune.sweep.display import compared

if TYPE_CHECKING:
    from mvprune.client.blocking.sweep import Sweep


def create_command(argv: Sequence[str]) -> ExitCode:
    """Creates a sweep; with --wait, or --download, sees it through."""
    parser = create_parser(argv)
    args = parser.parse_args(argv)
    if args.print_schema:
        from mvprune.spec.parameters import PARAMETERS
        from mvprune.spec.schema import schema  # few ask for it

        print_data(schema(PARAMETERS), "json")
        return ExitCode.OK
    waits = args.wait or args.download is not None
    if args.timeout is not None and not waits:
        raise UsageError("--timeout: is for waiting; it needs --wait or --download", parser.prog)
    wanted = submission(args)
    if args.download is not None and isinstance(wanted.options["strategy"], TicketStrategy):
        text = "--download: must be unset with tickets, which recommend no artifact; mvpctl download takes a job"
        raise UsageError(text, parser.prog)
    if args.download is not None:
        from mvprune.client.download import check_destination  # few need it

        check_destination(args.download)
    waits = waits and not args.validate_only
    with connect(args) as client:
        try:
            with sending(args.form, only_checks=args.validate_only) as show:
                sweep = wanted.send(client, show)
        except KeyboardInterrupt:
            if not args.validate_only:
                text = "interrupted; the sweep may have been created all the same: see mvpctl sweep list"
                print(f"\n{text}", file=sys.stderr)
            raise
        _tell(sweep, args, waits=waits)
        return finish(sweep, args.timeout, args.form, args.download) if waits else ExitCode.OK


def _tell(sweep: Sweep, args: argparse.Namespace, *, waits: bool) -> None:
    """Prints what was created. Ids and data of a sweep that is waited for come at the end."""
    if waits and not args.form.is_text:
        for note in () if args.form.quiet else sweep.notes:
            print(clean(f"note: {note}"), file=sys.stderr)
        return

    def text() -> None:
        total = sweep.counts.total
        later = {"search": "points as the search goes on", "tickets": "points as the rounds end"}
        points = later.get(sweep.spec.strategy, f"{total:,} points")
        made = "valid" if args.validate_only else f"sweep {sweep.id} created"
        print(clean(f"{made}: {points}; {compared(sweep.spec)}"), flush=True)
        for note in sweep.notes:
            print(clean(f"note: {note}"), flush=True)
        if args.validate_only and sweep.estimate:
            print(clean(sweep.estimate.text))

    answer(args.form, sweep, [] if args.validate_only else [sweep.id], text)
