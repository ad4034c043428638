"""The options of `mvpctl submit`: the parameters of a job, and those of the command."""

from __future__ import annotations

import argparse
import os
from typing import Any

from mvprune.cli._options import Parser, command_parser
from mvprune.cli._types import duration, label, memory, number, path, whole_number
from mvprune.cli._wait import add_waiting
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import METHODS, PARAMETERS

_EXAMPLE = """mvpctl submit --model bert-base-uncased --task sst2 --density 0.03 --wait
  mvpctl submit --model ./model --train train.jsonl --validation dev.tsv --density 0.1 --download out/
  mvpctl submit --model bert-base-uncased --task mrpc --mask-from job:sst2-k3x9
  mvpctl submit -f job.yaml --seed 1"""
_USAGE = (
    "mvpctl submit [-f FILE] --model MODEL (--density D | --sparsity D | --mask-from MODEL | --pattern N:M) "
    "[--task TASK] [OPTION ...]"
)
_GATES = """What the result must reach: METRIC>=NUMBER or METRIC<=NUMBER, in quotes. It is evaluated on the server and
recorded on the job; with --wait the exit code is 5 where one is missed.

  f1>=80           the task's metrics, in percent (a perplexity in its own unit)
  delta_f1>=-2     pruned minus dense: two points lost at most
  dense_f1>=85     of the dense model
  bytes<=10MB      the whole artifact: kB, MB, GB, KiB, MiB, GiB
  size_ratio>=20   the dense model's bytes in fp32 to those of the sparse weights
  density<=0.03    the fraction of weights kept
  latency_ratio>=2 dense time to sparse time, one input on one thread of the worker
  above_constant>=0.1  the primary metric minus that of a constant answer, as a fraction"""
_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {},
    Kind.WORD: {},
    Kind.NUMBER: {"type": number},
    Kind.WHOLE: {"type": whole_number},
    Kind.FLAG: {"action": "store_true", "default": None},
    Kind.TIME: {"type": duration},
    Kind.SIZE: {"type": memory},
    Kind.TEXTS: {"action": "append", "default": []},
    Kind.LABELS: {"type": label, "action": "append", "default": []},
}


def submit_parser() -> Parser:
    """A parser, by groups of options. Where an option goes (`dest`) is the parameter of `Client.submit`."""
    parser = command_parser("submit", _EXAMPLE, job=False)
    parser.usage = _USAGE
    groups = {name: parser.add_argument_group(name, text) for name, text in group_texts().items()}
    add_file(groups["model"])
    for one in PARAMETERS.values():
        add_parameter(groups[one.group], one)
    groups["model"].add_argument(
        "--sparsity", type=number, metavar="D", help="the same number, as the paper names it: the fraction that remains"
    )
    _add_call(groups["job"])
    by = "--name gives it a name for people, and with --request-id a repeated submit is the same job"
    parser.remedies = dict.fromkeys(("--id", "--job-id"), f"; the server makes the id of a job; {by}")
    return parser


def group_texts() -> dict[str, str | None]:
    """The groups of options, and what is said about each."""
    texts = {
        "method": "\n".join(f"  {name:<20}{method.help}" for name, method in METHODS.items()),
        "limits": "A TIME is a number with its unit: 90s, 15m, 2h, 7d.",
        "gates": _GATES,
    }
    return {one.group: texts.get(one.group) for one in PARAMETERS.values()}


def add_parameter(group: argparse._ArgumentGroup, one: Parameter, **how: Any) -> None:
    """Adds the option of a parameter.

    Args:
        how: arguments of argparse in place of those that are usual for its kind.
    """
    takes: dict[str, Any] = {} if one.kind is Kind.FLAG else {"metavar": one.metavar}
    text = one.description if one.name == "method" or not one.words else f"{', '.join(one.words)}: {one.description}"
    more = "; may be repeated" if one.kind in (Kind.TEXTS, Kind.LABELS) else ""
    shown = (text + more).replace("%", "%%")
    group.add_argument(one.flag, **{"dest": one.name, "help": shown, **takes, **_TYPES[one.kind], **how})


def add_file(group: argparse._ArgumentGroup) -> None:
    """Adds the options about job files."""
    group.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="a job file, YAML or JSON, - for stdin: docs/job-file.md; options take precedence over it",
    )
    group.add_argument("--print-schema", action="store_true", help="print the JSON Schema of job files")


def _add_call(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--request-id",
        default=os.environ.get("MVPRUNE_REQUEST_ID", ""),
        metavar="ID",
        help="repeated with the same id, it is the same job; default: MVPRUNE_REQUEST_ID, else in CI an id of the run "
        "and of what is submitted, else a new id",
    )
    group.add_argument("--validate-only", action="store_true", help="check the job, start nothing")
    group.add_argument("--wait", action="store_true", help="wait for the end; the exit code tells how the job ended")
    group.add_argument("--download", type=path, metavar="DIR", help="wait, then download the artifact into this folder")
    add_waiting(group)
