"""mvpctl project"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.options import command_parser, connect, subcommand
from mvprune.cli.shared.output import answer, print_table
from mvprune.cli.shared.types import memory, number, whole_number
from mvprune.client.tables import PROJECT_COLUMNS, project_rows

if TYPE_CHECKING:
    from mvprune.client.admin import Project

_HELP = """usage: mvpctl project get|list|set ...

Shows what a project has, lists projects and sets their quotas. A project is created when it is first used.

example:
  mvpctl project get
  mvpctl project list
  mvpctl project set search --max-queued-jobs 200 --max-running-gpus 8 --max-upload-bytes 500GiB"""


def project_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    return subcommand("project", _HELP, {"get": _get, "list": _list, "set": _set}, argv)


def _get(argv: Sequence[str]) -> None:
    details = "Shows the quotas of a project, what it uses, and how many jobs, sweeps, uploads and artifacts it has."
    parser = command_parser("project get", "mvpctl project get\n  mvpctl project get search", details, job=False)
    parser.add_argument("id", metavar="PROJECT", nargs="?", help="default: the client's")
    args = parser.parse_args(argv)
    with connect(args) as client:
        project = client.admin.project(args.id or client.project)
    answer(args.form, project, [project.id], lambda: _print_one(project))


def _print_one(project: Project) -> None:
    _print([project])
    counts = [
        [kind, state, f"{number}"]
        for kind, states in (("jobs", project.jobs), ("sweeps", project.sweeps), ("uploads", project.uploads))
        for state, number in sorted(states.items())
    ]
    print()
    print_table(["OF", "STATE", "NUMBER"], [*counts, ["artifacts", "", f"{project.artifacts}"]])


def _list(argv: Sequence[str]) -> None:
    parser = command_parser("project list", "mvpctl project list", "Lists all projects, by name.", job=False)
    args = parser.parse_args(argv)
    with connect(args) as client:
        projects = list(client.admin.projects())
    answer(args.form, projects, [project.id for project in projects], lambda: _print(projects))


def _set(argv: Sequence[str]) -> None:
    details = "Sets all quotas; one that is left out goes back to the server's default."
    parser = command_parser(
        "project set",
        "mvpctl project set search --max-queued-jobs 200 --max-running-gpus 8 --max-upload-bytes 500GiB",
        details,
        job=False,
    )
    parser.add_argument("id", metavar="PROJECT")
    parser.add_argument("--max-queued-jobs", type=whole_number, metavar="N", help="queued jobs at the same time")
    parser.add_argument("--max-running-gpus", type=number, metavar="N", help="GPUs in use at the same time")
    parser.add_argument("--max-upload-bytes", type=memory, metavar="SIZE", help="size of all uploads, such as 500GiB")
    args = parser.parse_args(argv)
    with connect(args) as client:
        project = client.admin.set_quotas(
            args.id,
            max_queued_jobs=args.max_queued_jobs,
            max_running_gpus=args.max_running_gpus,
            max_upload_bytes=args.max_upload_bytes,
        )
    answer(args.form, project, [project.id], lambda: _print([project]))


def _print(projects: Sequence[Project]) -> None:
    print_table(PROJECT_COLUMNS, project_rows(projects), numbers=True)
