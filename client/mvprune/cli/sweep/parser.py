"""The options of `mvpctl sweep create`: those of `mvpctl submit`, which take several values, and those of sweeps."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mvprune.cli.shared.commands import SETTING
from mvprune.cli.shared.options import Parser, command_parser
from mvprune.cli.shared.submit_parser import (
    add_file,
    add_help_all,
    add_parameter,
    add_set,
    asks_for_help,
    brief,
    group_texts,
)
from mvprune.cli.shared.types import path, seconds
from mvprune.cli.sweep.values import cell, splits, values_of
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.spec.sweep_settings import AXES, POINTS, WITHOUT

_EXAMPLE = """mvpctl sweep create --model ./model --task sst2 --max-loss 1.0 --wait
  mvpctl sweep create --model ./model --task sst2 --density 0.03,0.05,0.1 --method movement,magnitude --seed 0..4
  mvpctl sweep create --model ./model --task sst2,mrpc --strategy tickets --density 0.5,0.3,0.1 --seed 0..4
  mvpctl sweep create -f sweep.yaml --validate-only"""
_USAGE = """mvpctl sweep create --model MODEL --task TASK --max-loss POINTS [OPTION ...]
       mvpctl sweep create --model MODEL --task TASK --density D,D,... [OPTION ...]
       mvpctl sweep create -f FILE [OPTION ...]"""
_DETAILS = """Creates jobs that differ in the options that are given several values. The jobs are all combinations.

  numbers, words     --density 0.03,0.05 --method movement,magnitude
  whole numbers      --seed 0..4
  texts              --train a.tsv --train b.tsv; models and teachers also with commas

Without --density it searches for the smallest density that passes all gates: docs/sweeps.md. With --strategy tickets
it finds lottery tickets in rounds of pruning: docs/lottery-tickets.md."""
_GATES = "What a recommended point must reach, as for mvpctl submit. No job FAILS because of them."
_MANY = (Kind.NUMBER, Kind.WHOLE, Kind.WORD, Kind.TEXT)  # kinds of which a command line takes several values


def create_parser(argv: Sequence[str] = ()) -> Parser:
    """A parser, of the options that most people set if `argv` asks for --help.

    The `dest` of an option is a parameter of jobs, or `SETTING` and a setting of sweeps.
    """
    is_brief = asks_for_help(argv)
    parser = command_parser("sweep create", _EXAMPLE, _DETAILS, job=False)
    parser.usage = _USAGE
    texts = {**group_texts(is_brief=is_brief), "gates": _GATES}
    groups = {name: parser.add_argument_group(name, text) for name, text in texts.items()}
    add_file(groups["model"])
    add_help_all(parser)
    for one in PARAMETERS.values():
        if one.name != "strict_gates" and not one.by_name and (one.is_common or not is_brief):
            add_parameter(groups[one.group], one, **(brief(one) if is_brief else {}) | _several(one))
    groups["model"].add_argument(
        "--sparsity",
        type=values_of(PARAMETERS["density"]),
        action="append",
        default=[],
        metavar="D",
        help="the same numbers, as the paper names them: the fractions that remain",
    )
    add_set(parser, groups["method"], _readers())
    _add_cells(parser.add_argument_group("points"))
    add_settings(parser, SETTINGS.values())
    _add_call(parser.add_argument_group("call"))
    return parser


def add_axes(parser: Parser) -> None:
    """Adds the options of parameters that may differ from job to job, each with several values."""
    group = parser.add_argument_group("axes", "Each takes several values; the points are all combinations.")
    for one in AXES.values():
        if one.kind in _MANY and not one.by_name:
            add_parameter(group, one, **_several(one))
    add_set(parser, group, _readers())


def _readers() -> dict[str, Callable[[str], Any]]:
    """The parser of the axes that --set sets."""
    return {one.name: values_of(one) for one in AXES.values() if one.by_name and one.kind in _MANY}


def add_points(group: argparse._ArgumentGroup) -> None:
    """Adds the option of points beside the combinations."""
    group.add_argument(
        "--point",
        dest=SETTING + POINTS,
        type=cell,
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="a job beside the combinations, such as density=1,model=./small; may be repeated",
    )


def _add_cells(group: argparse._ArgumentGroup) -> None:
    """Adds the options of points beside the combinations, and of those left out."""
    add_points(group)
    group.add_argument(
        "--without",
        dest=SETTING + WITHOUT,
        type=cell,
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="leave out combinations with all of these values, such as method=magnitude,density=0.01; may be repeated",
    )


def add_settings(parser: Parser, settings: Iterable[Parameter]) -> None:
    """Adds options of sweeps, by groups."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in settings:
        if one.group not in groups:
            groups[one.group] = parser.add_argument_group(one.group)
        add_parameter(groups[one.group], one, dest=SETTING + one.name)


def _several(one: Parameter) -> dict[str, Any]:
    """The type of an option that may have several values."""
    if one.name not in AXES or one.kind not in _MANY:
        return {}
    metavar = f"{one.metavar}[,...]" if splits(one) else one.metavar
    return {"type": values_of(one), "action": "append", "default": [], "metavar": metavar}


def _add_call(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--id", default="", metavar="ID", help="id of the sweep; default: one is made")
    group.add_argument(
        "--request-id",
        default=os.environ.get("MVPRUNE_REQUEST_ID", ""),
        metavar="ID",
        help="repeated with the same id, it is the same sweep; default: as for mvpctl submit",
    )
    group.add_argument(
        "--validate-only", action="store_true", help="check the sweep, print its jobs and an estimate, start nothing"
    )
    group.add_argument("--wait", action="store_true", help="wait for the end; the exit code tells how the sweep ended")
    group.add_argument(
        "--download", type=path, metavar="DIR", help="wait, then download the recommended artifact into this folder"
    )
    group.add_argument("--timeout", type=seconds, metavar="SECONDS", help="stop waiting after this; exit code 6")
