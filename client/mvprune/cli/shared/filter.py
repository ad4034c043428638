"""Which jobs `mvpctl list` shows: options as a filter of ListJobs."""

from __future__ import annotations

import argparse

from mvprune.cli.shared.options import Parser
from mvprune.cli.shared.types import one_of
from mvprune.client.filters import all_of, any_of, of_label, quoted
from mvprune.client.models import JobState

_FIELDS = (
    "state, failure, task, model, method, display_name, creator, sweep (its id), priority, metric, difference, "
    "duration (seconds), create_time, end_time, labels.KEY"
)


def add_filter(parser: Parser) -> None:
    """Adds the options that `filter_of` reads."""
    group = parser.add_argument_group("which", "All options must match; of several states or tasks, one must match.")
    states = [state.value for state in JobState if state is not JobState.UNSPECIFIED]
    group.add_argument(
        "--state",
        type=one_of(*states),
        action="append",
        default=[],
        metavar="STATE",
        help=f"{', '.join(states)}; may be repeated",
    )
    group.add_argument("--task", action="append", default=[], metavar="TASK", help="sst2, squad, ...; may be repeated")
    group.add_argument(
        "--label",
        type=_label,
        action="append",
        default=[],
        dest="labels",
        metavar="KEY[=VALUE]",
        help="with this label (and value); may be repeated",
    )
    group.add_argument(
        "--filter",
        default="",
        metavar="FILTER",
        help=f"comparisons of {_FIELDS} with = != < <= > >=, joined by AND, OR, NOT and parentheses "
        "(OR binds tighter than AND); labels:KEY for jobs that have it; metrics and differences are fractions: "
        "-0.01 is one point less",
    )


def add_filter_of(parser: argparse.ArgumentParser, fields: str, orders: str) -> None:
    """Adds --filter and --order-by of a list that is none of jobs.

    Args:
        fields: that are compared.
        orders: the names of orders.
    """
    parser.add_argument("--filter", default="", metavar="EXPRESSION", help=f"as of mvpctl list, of {fields}")
    help_text = f"{orders}; 'FIELD desc' for descending; default: 'create_time desc'"
    parser.add_argument("--order-by", default="", metavar="FIELD", help=help_text)


def filter_of(args: argparse.Namespace) -> str:
    """The options as one filter. What the user wrote comes first, so that positions in its errors are right."""
    return all_of(args.filter, any_of("state", args.state), any_of("task", list(map(quoted, args.task))), *args.labels)


def _label(text: str) -> str:
    try:
        return of_label(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
