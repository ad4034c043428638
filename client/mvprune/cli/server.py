"""mvpctl server"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mvprune.cli._app import COMPLETING
from mvprune.cli._exit import ExitCode
from mvprune.cli._options import plain_parser, subcommand
from mvprune.cli._output import answer

_HELP = """usage: mvpctl server COMMAND ...

Run the service on this machine.

commands:
  start     Start it; `mvpctl server start --help` lists its options.
  status    Show how a running one is doing.
  migrate   Bring the database of an older version to this version's schema.

example:
  mvpctl server start"""


def server_command(argv: Sequence[str]) -> int:
    """Starts the service, shows how it is doing, or migrates its database."""
    try:
        return subcommand("server", _HELP, _COMMANDS, argv) or ExitCode.OK
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mvprune"):
            raise
        print("this needs the service: pip install 'mvprune[all]'", file=sys.stderr)
        return ExitCode.REFUSED


def _start(argv: Sequence[str]) -> int:
    """All that follows `start` is the server's own."""
    if COMPLETING in os.environ:
        from mvprune.cli import _complete

        _complete.server_options()

    from mvprune_service.server import main

    return main(argv, prog="mvpctl server start")


def _migrate(argv: Sequence[str]) -> int:
    details = (
        "Bring the database of an older version to this version's schema, wholly or not at all. No server "
        "may run on it.\n\nSQLite's file is copied beside itself first. Make a backup of a PostgreSQL database "
        "yourself."
    )
    parser = plain_parser("server migrate", "mvpctl server migrate --home /var/lib/mvprune", details)
    parser.add_argument("--home", metavar="FOLDER", help="the server's; default: MVPRUNE_HOME, else ~/.mvprune")
    parser.add_argument("--database-url", metavar="URL", help="default: SQLite in the home folder")
    args = parser.parse_args(argv)

    from mvprune_service.migrate import CannotMigrate, migrate

    given = {"home": args.home, "database_url": args.database_url}
    try:
        done = migrate(**{name: value for name, value in given.items() if value})
    except CannotMigrate as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.ERROR
    value = {"from": done.found, "to": done.head, "backup": done.backup and str(done.backup)}
    answer(args.form, value, [done.head], lambda: _print_migrated(done.found, done.head, done.backup))
    return ExitCode.OK


def _print_migrated(found: str | None, head: str, backup: Path | None) -> None:
    if found == head:
        print(f"the database is at revision {head} already: nothing to do")
    elif found is None:
        print(f"the database was empty; it is at revision {head} now")
    else:
        print(f"migrated the database from revision {found} to {head}")
        if backup:
            print(f"what it was is kept in {backup}")


def _status(argv: Sequence[str]) -> int:
    from mvprune.cli.status import status_command

    return status_command(argv)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"start": _start, "status": _status, "migrate": _migrate}
