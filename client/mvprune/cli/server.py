"""mvpctl server"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mvprune.cli.shared.commands import COMMANDS
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import subcommand
from mvprune.cli.shared.provided import install, missing, provided

_HELP = """usage: mvpctl server COMMAND ...

Run the service on this machine.

commands:
  start     Start it; `mvpctl server start --help` lists its options.
  status    Show how a running one is doing.
  migrate   Bring the database of an older version to this version's schema.
  check     Look for damage in the database and the store.
  check-cluster
            Show what each node of the Ray cluster has, and whether jobs can run there.
  adopt-store
            Give the store to this database, after a restore or a change of database.
  backup    Back up the database, the store and the key, also while the server runs.
  restore   Restore a backup.
{needs}
example:
  mvpctl server start"""
_SERVER = COMMANDS["server"]


def server_command(argv: Sequence[str]) -> int:
    """Starts the service, shows how it is doing, or looks after its database and store."""
    needs = ""
    if missing(_SERVER.extra, _SERVER.package):
        needs = f"\nAll of them except status need: {install(_SERVER.extra)}\n"
    with refusals(_SERVER.extra):
        return subcommand("server", _HELP.format(needs=needs), _COMMANDS, argv) or ExitCode.OK


def _status(argv: Sequence[str]) -> int:
    from mvprune.cli.status import status_command

    return status_command(argv)


def _provided(name: str, argv: Sequence[str]) -> int | None:
    return provided(f"server.{name}", _SERVER.extra)(argv)


_COMMANDS: dict[str, Callable[[Sequence[str]], int | None]] = {
    "start": partial(_provided, "start"),
    "status": _status,
    "migrate": partial(_provided, "migrate"),
    "check": partial(_provided, "check"),
    "check-cluster": partial(_provided, "check-cluster"),
    "adopt-store": partial(_provided, "adopt-store"),
    "backup": partial(_provided, "backup"),
    "restore": partial(_provided, "restore"),
}
