"""mvpctl models, tasks, methods"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer, print_table
from mvprune.cli.shared.text import clean
from mvprune.client.tables import MODEL_COLUMNS, TASK_COLUMNS, model_rows, task_rows
from mvprune.common.exceptions import ServerUnreachable
from mvprune.common.suggestions import must_be_one_of
from mvprune.spec.parameters import PARAMETERS

if TYPE_CHECKING:
    from mvprune.client.catalog import MethodEntry


def models_command(argv: Sequence[str]) -> None:
    """Lists models."""
    details = (
        "Those under the server's roots, then the best known ones of the hub; any other of the hub can be named too.\n"
        "PRUNABLE is what densities are fractions of: the weights of the encoder's matrices."
    )
    args = command_parser("models", "mvpctl models", details, job=False).parse_args(argv)
    with connect(args) as client:
        models = list(client.models())

    def text() -> None:
        print_table(MODEL_COLUMNS, model_rows(models), expendable=("WHERE", "PARAMETERS"))

    answer(args.form, models, [model.name for model in models if not model.problem], text)


def tasks_command(argv: Sequence[str]) -> None:
    """Lists tasks."""
    details = "DATA is where a job's data comes from if it brings none: the server's own files, or the hub."
    args = command_parser("tasks", "mvpctl tasks", details, job=False).parse_args(argv)
    tasks = _listed(args, "tasks")
    answer(args.form, tasks, [task.name for task in tasks], lambda: print_table(TASK_COLUMNS, task_rows(tasks)))


def methods_command(argv: Sequence[str]) -> None:
    """Lists methods."""
    parser = command_parser("methods", "mvpctl methods obert", job=False)
    parser.add_argument("method", metavar="METHOD", nargs="?", help="only this one")
    args = parser.parse_args(argv)
    known = _listed(args, "methods")
    methods = [one for one in known if args.method in (None, one.name)]
    if not methods:
        raise UsageError(f"METHOD {must_be_one_of([one.name for one in known], args.method)}", parser.prog)
    answer(args.form, methods, [method.name for method in methods], lambda: _print_methods(methods))


def _listed(args: argparse.Namespace, what: str) -> list[Any]:
    """The server's tasks or methods; where none answers, those of this package, which says so on stderr."""
    with connect(args) as client:
        try:
            return list(getattr(client, what)())
        except ServerUnreachable as error:
            from mvprune import __version__
            from mvprune.client import catalog

            known: list[Any] = [*(catalog.own_tasks() if what == "tasks" else catalog.own_methods())]
            text = f"note: {error}: these are the {what} of mvprune {__version__} on this machine"
            more = "; DATA leaves out what a server has" if what == "tasks" else ""
            print(clean(f"{text}; a server of another version may have others{more}"), file=sys.stderr)
            return known


def _print_methods(methods: Sequence[MethodEntry]) -> None:
    for index, method in enumerate(methods):
        if index:
            print()
        rows = [[f"  {_flag(option.name)}", option.allowed, option.description] for option in method.options]
        print_table([f"--method {method.name}", "", method.description], rows)


def _flag(option: str) -> str:
    known = PARAMETERS.get(option)  # None: a server of another version has it
    return known.flag if known else f"--{option.replace('_', '-')}"
