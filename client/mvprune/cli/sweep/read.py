"""mvpctl sweep get, list, points"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from mvprune.cli.shared.filter import add_filter_of
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.types import positive_number
from mvprune.cli.sweep.follow import SWEEP_ARGUMENT
from mvprune.cli.sweep.output import Outcomes, print_points, print_sweep, print_sweeps, with_outcomes


def get_command(argv: Sequence[str]) -> None:
    """Shows a sweep, its recommendation and its front."""
    details = """Shows a sweep: its points, its recommendation, and its front: the points that no other is better than.
In the front are means over seeds ± their standard deviation; N is the number of seeds. Of lottery tickets it shows
which of them win: docs/lottery-tickets.md."""
    parser = command_parser("sweep get", "mvpctl sweep get sst2-k3x9 -o json", details, job=False)
    parser.add_argument("sweep", metavar="SWEEP", help=SWEEP_ARGUMENT)
    args = parser.parse_args(argv)
    with connect(args) as client:
        sweep = client.get_sweep(args.sweep)
        found = Outcomes.of(sweep, sweep)
    answer(args.form, with_outcomes(found), [sweep.id], lambda: print_sweep(found))


def list_command(argv: Sequence[str]) -> None:
    """Lists sweeps."""
    example = "mvpctl sweep list --limit 10\n  mvpctl sweep list --filter 'state = ACTIVE AND labels.team = search'"
    parser = command_parser("sweep list", example, "Lists sweeps.", job=False)
    fields = "state, display_name, creator, create_time, end_time, labels.KEY"
    add_filter_of(parser, fields, "create_time, end_time, state or display_name")
    parser.add_argument("--limit", type=positive_number, default=50, metavar="N", help="at most N sweeps; default 50")
    args = parser.parse_args(argv)
    with connect(args) as client:
        sweeps = list(client.sweeps(filter=args.filter, order_by=args.order_by, limit=args.limit))
    answer(args.form, sweeps, [sweep.id for sweep in sweeps], lambda: print_sweeps(sweeps))
    _tell_limit(len(sweeps), args.limit, quiet=args.form.quiet)


def points_command(argv: Sequence[str]) -> None:
    """Lists the points of a sweep."""
    details = """Lists the points of a sweep by number: the task's primary metric, its difference from the dense model,
the density that was reached, and the bytes of the artifact. * marks the front. N is how many seeds of the cell have a
result. --quiet prints the jobs' ids."""
    parser = command_parser("sweep points", "mvpctl sweep points sst2-k3x9 --front", details, job=False)
    parser.add_argument("sweep", metavar="SWEEP", help=SWEEP_ARGUMENT)
    parser.add_argument("--front", action="store_true", help="only points that no other one is better than")
    parser.add_argument("--limit", type=positive_number, default=100, metavar="N", help="at most N points; default 100")
    args = parser.parse_args(argv)
    with connect(args) as client:
        found = client.get_sweep(args.sweep).points(optimal_only=args.front)
        points = list(itertools.islice(found, args.limit))
    jobs = [point.job.rpartition("/")[2] for point in points if point.job]
    answer(args.form, points, jobs, lambda: print_points(points))
    _tell_limit(len(points), args.limit, quiet=args.form.quiet)


def _tell_limit(shown: int, limit: int, *, quiet: bool) -> None:
    if shown == limit and not quiet:
        print(f"these are the first {limit}; raise --limit to list more", file=sys.stderr)
