"""mvpctl server status"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.client.tables import jobs_by_state, status_fields

if TYPE_CHECKING:
    from mvprune.client.server import ServerStatus


def status_command(argv: Sequence[str]) -> ExitCode:
    """Shows how the server is doing."""
    details = "Shows how the server is doing. Exit codes: 0 all is well, 1 it has problems, 7 it cannot be reached."
    args = command_parser("server status", "mvpctl server status", details, job=False).parse_args(argv)
    with connect(args) as client:
        status = client.admin.server_status()
    answer(args.form, status, sorted(status.problems), lambda: _print(status, client.address))
    return ExitCode.ERROR if status.problems else ExitCode.OK


def _print(status: ServerStatus, address: str) -> None:
    print_fields(status_fields(status, address))
    if status.jobs:
        print()
        print_table(["JOBS", ""], jobs_by_state(status), numbers=True)
    if status.problems:
        print()
        print_table(["PROBLEM", ""], [[part, what] for part, what in sorted(status.problems.items())])
