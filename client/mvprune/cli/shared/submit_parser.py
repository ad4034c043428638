"""The options of `mvpctl submit`: the parameters of a job, and those of the command."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from mvprune.cli.shared.commands import COMPLETING
from mvprune.cli.shared.options import Parser, command_parser
from mvprune.cli.shared.types import duration, label, memory, number, one_of, path, whole_number
from mvprune.cli.shared.wait import add_waiting
from mvprune.common.suggestions import did_you_mean
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import METHODS, PARAMETERS, SETTINGS

_EXAMPLE = """mvpctl submit --model bert-base-uncased --task sst2 --density 0.03 --wait
  mvpctl submit --model ./model --task sst2 --max-loss 1.0 --download out/
  mvpctl submit --model ./model --train train.jsonl --validation dev.tsv --density 0.1 --pattern 1x4 --download out/
  mvpctl submit -f job.yaml --seed 1"""
_USAGE = (
    "mvpctl submit [-f FILE] --model MODEL (--density D | --max-loss POINTS | --mask-from MODEL | --pattern N:M) "
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
  int8_latency_ratio>=1  the unpruned model's time in torch's dynamic int8 to sparse time
  above_constant>=0.1  the primary metric minus that of a constant answer, as a fraction"""
_SHORT_GATES = "What the result must reach; --help-all lists the names."
_BRIEF = "These are the options that most people set; --help-all shows all."
_RARE = (
    *("project", "token_file", "ca_cert", "insecure", "print_schema", "sparsity"),
    *("request_id", "timeout", "summary", "junit"),
)
"""Options of the command that only --help-all shows."""
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


def submit_parser(argv: Sequence[str] = ()) -> Parser:
    """A parser, by groups of options. Where an option goes (`dest`) is the parameter of `Client.submit`.

    Args:
        argv: if --help is in it, the parser has only the options that most people set.
    """
    is_brief = asks_for_help(argv)
    parser = command_parser("submit", _EXAMPLE, _BRIEF if is_brief else "", job=False)
    parser.usage = _USAGE
    groups = {name: parser.add_argument_group(name, text) for name, text in group_texts(is_brief=is_brief).items()}
    add_file(groups["model"])
    add_help_all(parser)
    for one in PARAMETERS.values():
        if not one.by_name and (one.is_common or not is_brief):
            add_parameter(groups[one.group], one, **brief(one) if is_brief else {})
    add_set(parser, groups["method"])
    groups["model"].add_argument(
        "--sparsity", type=number, metavar="D", help="the same number, as the paper names it: the fraction that remains"
    )
    loss = SETTINGS["max_loss"]
    shown = "find the smallest density with at most this loss"
    if not is_brief:
        shown += f", {loss.help}; a search, as of mvpctl sweep create, which takes the same options"
    add_parameter(groups["model"], loss, help=shown)
    add_parameter(groups["model"], SETTINGS["time"], help="with --max-loss: the time that the search may take")
    add_parameter(groups["model"], SETTINGS["goal"], help="with --max-loss: what is to be small; default: latency")
    _add_call(groups["job"])
    by = "--name gives it a name for people, and with --request-id a repeated submit is the same job"
    if is_brief:
        hide(parser, _RARE)
    parser.remedies = {**parser.remedies} | dict.fromkeys(
        ("--id", "--job-id"), f"; the server makes the id of a job; {by}"
    )
    return parser


def asks_for_help(argv: Sequence[str]) -> bool:
    """Whether a command line asks for the options that most people set, and no shell for all of them."""
    return COMPLETING not in os.environ and not {"-h", "--help"}.isdisjoint(argv)


def brief(one: Parameter) -> dict[str, Any]:
    """The help of an option in few words."""
    text = re.split(r"[;:] ", one.help)[0]
    words = f"{', '.join(one.words)}: " if one.words and one.name != "method" else ""
    return {"help": f"{words}{text}".replace("%", "%%")}


def hide(parser: Parser, names: Container[str]) -> None:
    """Leaves options out of the help."""
    for action in parser._actions:
        if action.dest in names:
            action.help = argparse.SUPPRESS


def add_help_all(parser: Parser) -> None:
    """Adds the option that shows all options."""
    parser.add_argument("--help-all", action="help", help="show all options and exit")


def add_set(parser: Parser, group: argparse._ArgumentGroup, several: Mapping[str, Callable[[str], Any]] = {}) -> None:
    """Adds --set, for the parameters that have no option of their own.

    Args:
        several: by parameter that may have several values, what reads them from a text.
    """
    named = {one.name: one for one in PARAMETERS.values() if one.by_name}
    parser.set_defaults(**{name: [] if name in several else None for name in named})
    parser.remedies = {f"--{name.replace('_', '-')}": f"; use --set {name}=VALUE" for name in named}

    def read(text: str) -> tuple[str, Any]:
        name, equals, value = text.partition("=")
        name = name.replace("-", "_")
        if not equals:
            raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
        if name not in named:
            known = PARAMETERS.get(name)
            hint = f"; use {known.flag}" if known else did_you_mean(name, named)
            raise argparse.ArgumentTypeError(f"must be a setting without an option of its own, got {name!r:.200}{hint}")
        with naming(name):
            return name, several[name](value) if name in several else read_value(named[name], value)

    class Set(argparse.Action):
        """Stores a value under the name that is given with it."""

        def __call__(self, parser: Any, namespace: Any, given: Any, option_string: str | None = None) -> None:
            name, value = given
            setattr(namespace, name, [*getattr(namespace, name), value] if name in several else value)

    group.add_argument(
        "--set",
        action=Set,
        dest=argparse.SUPPRESS,
        type=read,
        metavar="NAME=VALUE",
        help="a setting without an option of its own, such as first_event=0.5; see mvpctl methods; may be repeated",
    )


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """An error about a value names the parameter, where one option takes several parameters."""
    try:
        yield
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(str(error).replace(", got", f" for {name}, got", 1)) from None


def read_value(one: Parameter, text: str) -> Any:
    """The value of a parameter that a text stands for; None: it is not set."""
    if not text:
        return None
    match one.kind:
        case Kind.FLAG:
            return one_of("true", "false")(text) == "true"
        case Kind.TEXTS:
            return [text]
    read: Callable[[str], Any] = _TYPES[one.kind].get("type", str)
    return read(text)


def group_texts(*, is_brief: bool) -> dict[str, str | None]:
    """The groups of options, and what is said about each."""
    texts = {"method": f"The methods are {', '.join(METHODS)}.", "gates": _SHORT_GATES}
    if not is_brief:
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
