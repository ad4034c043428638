"""mvpctl server"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from mvprune.cli._errors import UsageError
from mvprune.cli._exit import ExitCode
from mvprune.cli._options import Parser, one_of
from mvprune.cli._output import print_json

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
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP)
        return ExitCode.OK
    if argv[0] not in _COMMANDS:
        raise UsageError(f"command: got {argv[0]!r}; allowed: {', '.join(_COMMANDS)}", "mvpctl server")
    try:
        return _COMMANDS[argv[0]](argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mvprune"):
            raise
        print("this needs the service: pip install 'mvprune[all]'", file=sys.stderr)
        return ExitCode.REFUSED


def _start(argv: Sequence[str]) -> int:
    """All that follows `start` is the server's own."""
    from mvprune_service.server import main

    return main(list(argv))


def _migrate(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="mvpctl server migrate",
        description="Bring the database of an older version to this version's schema, wholly or not at all. No server "
        "may run on it.\n\nSQLite's file is copied beside itself first. Make a backup of a PostgreSQL database "
        "yourself.",
        epilog="example:\n  mvpctl server migrate --home /var/lib/mvprune",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--home", metavar="FOLDER", help="the server's; default: MVPRUNE_HOME, else ~/.mvprune")
    parser.add_argument("--database-url", metavar="URL", help="default: SQLite in the home folder")
    parser.add_argument(
        "-o", "--output", metavar="FORM", type=one_of("text", "json"), default="text", help="text (default) or json"
    )
    args = parser.parse_args(argv)

    from mvprune_service.migrate import CannotMigrate, migrate

    given = {"home": args.home, "database_url": args.database_url}
    try:
        done = migrate(**{name: value for name, value in given.items() if value})
    except CannotMigrate as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.ERROR
    if args.output == "json":
        print_json({"from": done.found, "to": done.head, "backup": done.backup and str(done.backup)})
    elif done.found == done.head:
        print(f"the database is at revision {done.head} already: nothing to do")
    elif done.found is None:
        print(f"the database was empty; it is at revision {done.head} now")
    else:
        print(f"migrated the database from revision {done.found} to {done.head}")
        if done.backup:
            print(f"what it was is kept in {done.backup}")
    return ExitCode.OK


def _status(argv: Sequence[str]) -> int:
    from mvprune.cli.status import status_command

    return status_command(argv)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"start": _start, "status": _status, "migrate": _migrate}
