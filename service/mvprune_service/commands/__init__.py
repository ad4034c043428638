"""Commands of mvpctl that run the server, or work on its database and store. Importing them does not import the rest of
the service."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mvprune.cli.shared.commands import COMPLETING
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.options import Parser, plain_parser
from mvprune.cli.shared.output import answer, print_table
from mvprune.cli.shared.types import one_of, path, seconds


def start_command(argv: Sequence[str]) -> int:
    """Starts the server; its options are the settings."""
    if COMPLETING in os.environ:
        _complete_start()

    from mvprune_service.server import main

    return main(argv, prog="mvpctl server start")


def _complete_start() -> None:
    """Prints how `mvpctl server start` could continue, and ends the program. The time limit of completion is for
    questions to a server; here importing the settings takes the time."""
    signal.alarm(0)
    from mvprune.cli.shared import complete as _complete
    from mvprune_service.command_line import command_line

    parser: Any = command_line("mvpctl server start").root_parser
    for action in parser._actions:  # pydantic shows the words of a choice only in its metavar
        takes = str(action.metavar)
        if takes.startswith(_complete.PATHS):
            action.type = path
        elif takes.startswith("{"):
            action.type = one_of(*takes.strip("{}").split(","))
    _complete.options(parser)


def migrate_command(argv: Sequence[str]) -> int:
    """Migrates the database of a server that does not run."""
    details = (
        "Bring the database of an older version to this version's schema, wholly or not at all. No server "
        "may run on it.\n\nSQLite's file is copied beside itself first. Make a backup of a PostgreSQL database "
        "yourself."
    )
    parser = plain_parser("server migrate", "mvpctl server migrate --home /var/lib/mvprune", details)
    add_database(parser)
    args = parser.parse_args(argv)

    from mvprune_service.commands.migrate import migrate

    done = migrate(**given(args, "home", "database_url"))
    value = {"from": done.found, "to": done.head, "backup": done.backup and str(done.backup)}
    answer(args.form, value, [done.head], lambda: _print_migrated(done.found, done.head, done.backup))
    return ExitCode.OK


def add_database(parser: Parser) -> None:
    """Adds the options that name a server's database."""
    parser.add_argument("--home", metavar="FOLDER", help="the server's; default: MVPRUNE_HOME, else ~/.mvprune")
    parser.add_argument("--database-url", metavar="URL", help="default: SQLite in the home folder")


def add_store(parser: Parser) -> None:
    """Adds the option that names a server's store."""
    parser.add_argument("--store", metavar="URL", help="default: a folder in the home folder")


def given(args: Namespace, *names: str) -> dict[str, str]:
    """The settings that the command line names."""
    return {name: value for name in names if (value := getattr(args, name))}


def _print_migrated(found: str | None, head: str, backup: Path | None) -> None:
    if found == head:
        print(f"the database is at revision {head} already: nothing to do")
    elif found is None:
        print(f"the database was empty; it is at revision {head} now")
    else:
        print(f"migrated the database from revision {found} to {head}")
        if backup:
            print(f"what it was is kept in {backup}")


def check_command(argv: Sequence[str]) -> int:
    """Looks for damage in the database and the store."""
    details = (
        "Look for damage in the database and the store. A server may be running.\n\n"
        "Every row is read; of SQLite every page, index and reference is checked too. In the store every artifact's "
        "manifest is hashed and the sizes of its files are compared. Exit code 1: something is wrong."
    )
    parser = plain_parser("server check", "mvpctl server check --home /var/lib/mvprune", details)
    add_database(parser)
    add_store(parser)
    parser.add_argument("--files", action="store_true", help="read and hash every file of every artifact too")
    args = parser.parse_args(argv)

    from mvprune_service.commands.check import check

    report = check(files=args.files, **given(args, "home", "database_url", "store"))

    def text() -> None:
        for problem in report.problems:
            print(problem)
        print(
            f"{report.database}: {report.rows:,} rows, {report.artifacts:,} artifacts, "
            f"{report.checkpoints:,} checkpoints, {report.chunks:,} chunks, "
            f"{report.log_chunks:,} chunks of logs, {len(report.problems):,} problems"
        )

    answer(args.form, asdict(report), report.problems, text)
    return ExitCode.ERROR if report.problems else ExitCode.OK


def check_cluster_command(argv: Sequence[str]) -> int:
    """Looks at the nodes of the Ray cluster."""
    details = (
        "Run a small job on each node of the Ray cluster: its versions of Python, torch, Ray and mvprune, its GPUs, "
        "and whether it can read the store and reach the server.\n\n"
        "The settings are those of the server: its home folder, variables and options. Jobs go on meanwhile. Exit "
        "code 1: a job would fail on one of the nodes."
    )
    parser = plain_parser("server check-cluster", "mvpctl server check-cluster --ray-address http://head:8265", details)
    parser.add_argument("--home", metavar="FOLDER", help="the server's; default: MVPRUNE_HOME, else ~/.mvprune")
    parser.add_argument("--ray-address", metavar="URL", help="default: the server's; else a Ray that it has started")
    add_store(parser)
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=120.0, help="how long to wait for nodes; default: 120"
    )
    args = parser.parse_args(argv)

    from mvprune_service.commands.check_cluster import check_cluster

    report = check_cluster(args.timeout, **given(args, "home", "ray_address", "store"))

    def text() -> None:
        columns = ("node", "python", "torch", "ray", "mvprune", "cpus", "gpus", "store", "server")
        rows = [
            [
                one.address,
                *(found or "none" for found in (one.python, one.torch, one.ray, one.mvprune)),
                f"{one.cpus:g}",
                ", ".join(one.gpu_names) or f"{one.gpus:g}",
                *("problem" if why else "ok" for why in (one.store, one.server)),
            ]
            for one in report.nodes
        ]
        print(f"{report.cluster}, mvprune {report.version} of the server")
        if rows:
            print_table(columns, rows)
        for problem in report.problems:
            print(problem)
        print(f"{len(report.nodes):,} nodes, {len(report.problems):,} problems")

    answer(args.form, asdict(report), report.problems, text)
    return ExitCode.ERROR if report.problems else ExitCode.OK


def adopt_store_command(argv: Sequence[str]) -> int:
    """Gives the store to the database."""
    details = (
        "Give the store to this database, after a restore or a change of database. Without --yes it only shows what "
        "it found.\n\n"
        "A server deletes objects from its store only if the store's mark names its database. Adopting replaces the "
        "mark: from then on what nothing in this database refers to is garbage, and the server deletes it after its "
        "--quarantine-days. "
        "A database that has lost commits is accepted as it is. Stop a server that uses SQLite first."
    )
    parser = plain_parser("server adopt-store", "mvpctl server adopt-store --home /var/lib/mvprune --yes", details)
    add_database(parser)
    add_store(parser)
    parser.add_argument("--yes", action="store_true", help="adopt it")
    args = parser.parse_args(argv)

    from mvprune_service.commands.adopt import adopt

    found = adopt(confirmed=args.yes, **given(args, "home", "database_url", "store"))
    value = asdict(found) | {"kept_wal": found.kept_wal and str(found.kept_wal)}

    def text() -> None:
        print(f"store         {found.store}")
        print(f"  marked by   {_marked(found.marked_by, found.marked_generation)}")
        print(f"  objects     {found.objects:,} of artifacts; this database refers to none of {found.unreferenced:,}")
        print(f"database      {_marked(found.database, found.generation)}")
        if found.lost:
            print(found.lost)
        print(found.why)
        if found.kept_wal:
            print(f"the WAL as it was is kept in {found.kept_wal}")
        if found.adopted:
            print("adopted: the store belongs to this database now")
        elif found.is_needed:
            print("nothing was changed; --yes adopts the store")
        else:
            print("nothing to do")

    answer(args.form, value, [found.standing], text)
    return ExitCode.REFUSED if found.is_needed and not found.adopted else ExitCode.OK


def _marked(database: str | None, generation: int | None) -> str:
    return f"{database}, generation {generation:,}" if database and generation is not None else "nothing"
