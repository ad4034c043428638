"""Which jobs `mvpctl list` shows: options as a filter of ListJobs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mvprune.cli.shared.options import Parser
from mvprune.cli.shared.types import one_of
from mvprune.client.models import JobState
from mvprune.common.identifiers import LABEL_KEY, LABEL_KEY_RULE

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


def filter_of(args: argparse.Namespace) -> str:
    """The options as one filter. What the user wrote comes first, so that positions in its errors are right."""
    states = _any("state", args.state)
    tasks = _any("task", [_quoted(task) for task in args.task])
    return " AND ".join(filter(None, (args.filter, states, tasks, *args.labels)))


def _any(field: str, values: Sequence[str]) -> str:
    """Whether a field has one of the values: OR binds tighter than AND."""
    return " OR ".join(f"{field} = {value}" for value in values)


def _label(text: str) -> str:
    """team=search -> labels.team = "search"; team -> labels:team."""
    key, separator, value = text.partition("=")
    if not LABEL_KEY.fullmatch(key):
        raise argparse.ArgumentTypeError(f"must be KEY or KEY=VALUE with a key of {LABEL_KEY_RULE}, got {text!r}")
    return f"labels.{key} = {_quoted(value)}" if separator else f"labels:{key}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
