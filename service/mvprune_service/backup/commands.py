"""`mvpctl server backup` and `mvpctl server restore`. Importing them does not import the rest of the service."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TextIO

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.live import new_bars
from mvprune.cli.shared.options import plain_parser
from mvprune.cli.shared.output import answer
from mvprune.common.units import size
from mvprune_service.commands import add_database, add_store, given

_PLACE = "a folder, or s3://bucket/prefix"
_SHOWN = 20  # lines


def backup_command(argv: Sequence[str]) -> int:
    """Makes a backup, or checks one."""
    details = (
        "Back up the database, the server's key, and all artifacts and checkpoints that the database refers to. "
        "Servers may be running.\n\n"
        "PLACE may have several backups. Files that it has already are not copied again. An interrupted backup is "
        "incomplete; the next one continues with its files. Exit code 1: something is missing or damaged."
    )
    parser = plain_parser(
        "server backup", "mvpctl server backup /mnt/backups --home /var/lib/mvprune --keep 7", details
    )
    parser.add_argument("place", metavar="PLACE", help=_PLACE)
    add_database(parser)
    add_store(parser)
    _add_key(parser)
    parser.add_argument("--keep", metavar="N", type=_positive, help="delete all but the newest N backups afterwards")
    parser.add_argument("--check", action="store_true", help="read and hash every file of a backup instead")
    parser.add_argument("--backup", metavar="NAME", default="", help="with --check: which one; default: the newest")
    args = parser.parse_args(argv)
    if args.backup and not args.check:
        parser.error("--backup needs --check")
    if args.keep and args.check:
        parser.error("--keep must not be used with --check")
    return _check(args) if args.check else _make(args)


def _make(args: argparse.Namespace) -> int:
    from mvprune_service.backup.making import make

    with _shown(args.form.progress) as progress:
        settings = given(args, "home", "database_url", "store", "key_file")
        made = make(args.place, progress, args.keep or 0, **settings)

    def text() -> None:
        print(f"backup {made.backup} in {made.place}")
        _print_contents(made)
        print(
            f"  copied      {made.copied_objects:,} objects, {size(made.copied_bytes)}; the others were there already"
        )
        if made.deleted_backups:
            print(f"  deleted     {made.deleted_backups:,} older backups")
        _print_problems(made.problems)

    answer(args.form, made, [made.backup], text)
    return ExitCode.ERROR if made.problems else ExitCode.OK


def _check(args: argparse.Namespace) -> int:
    from mvprune_service.backup.restoring import check

    with _shown(args.form.progress) as progress:
        found = check(args.place, args.backup, progress)

    def text() -> None:
        print(f"backup {found.backup} in {found.place}")
        _print_contents(found)
        if found.incomplete:
            print(f"  incomplete  {', '.join(found.incomplete)}")
        _print_problems(found.problems)
        if not found.problems:
            print("every file is there and undamaged")

    answer(args.form, found, found.problems, text)
    return ExitCode.ERROR if found.problems else ExitCode.OK


def restore_command(argv: Sequence[str]) -> int:
    """Restores a backup."""
    details = (
        "Restore a backup into an empty database, the store and the key file. No server may use them. A backup of "
        "SQLite may be restored into PostgreSQL, and the reverse.\n\n"
        "Every file of the backup is verified first. Nothing is overwritten, except files of the store that are "
        "damaged. Objects of the store that are newer than the backup are reported and kept: servers delete nothing "
        "from that store until `mvpctl server adopt-store --yes`. An interrupted restore can be repeated."
    )
    parser = plain_parser("server restore", "mvpctl server restore /mnt/backups --home /var/lib/mvprune", details)
    parser.add_argument("place", metavar="PLACE", help=_PLACE)
    parser.add_argument("--backup", metavar="NAME", default="", help="which backup; default: the newest complete one")
    add_database(parser)
    add_store(parser)
    _add_key(parser)
    args = parser.parse_args(argv)

    from mvprune_service.backup.restoring import restore

    with _shown(args.form.progress) as progress:
        settings = given(args, "home", "database_url", "store", "key_file")
        done = restore(args.place, args.backup, progress, **settings)
    value = asdict(done) | {"kept_wal": done.kept_wal and str(done.kept_wal)}

    def text() -> None:
        print(f"restored backup {done.backup} of {done.place}")
        _print_contents(done)
        repaired = f", {done.repaired_objects:,} of them damaged before" if done.repaired_objects else ""
        print(f"  copied      {done.copied_objects:,} objects{repaired}; the others were in {done.store} already")
        if done.kept_wal:
            print(f"the WAL of the database that was here is kept in {done.kept_wal}")
        _print_problems(done.problems)
        if done.newer_objects:
            print(
                f"{done.newer_objects:,} objects ({size(done.newer_bytes)}) of the store are not in the backup, "
                f"{len(done.newer_artifacts):,} of them manifests of artifacts:"
            )
            _print_some(done.newer_artifacts)
        if not done.owns_store:
            print(
                "the store was in use: servers delete nothing from it until `mvpctl server adopt-store --yes`, which "
                "makes what this database does not refer to garbage"
            )

    answer(args.form, value, [done.backup], text)
    return ExitCode.ERROR if done.problems else ExitCode.OK


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key-file", metavar="FILE", help="the server's key; default: key in the home folder")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a number from 1, got {text!r}")
    return int(text)


def _print_contents(one: Any) -> None:
    print(f"  database    {one.database}, {one.rows:,} rows: {one.jobs:,} jobs, {one.succeeded:,} of them SUCCEEDED")
    print(f"  store       {one.artifacts:,} artifacts, {one.checkpoints:,} checkpoints: {one.objects:,} objects")


def _print_problems(problems: Sequence[str]) -> None:
    if problems:
        print(f"{len(problems):,} problems:")
        _print_some(problems)


def _print_some(lines: Sequence[str]) -> None:
    for line in lines[:_SHOWN]:
        print(f"  {line}")
    if len(lines) > _SHOWN:
        print(f"  … and {len(lines) - _SHOWN:,} more; -o json shows all")


@contextmanager
def _shown(stream: TextIO | None) -> Iterator[Callable[[str, int, int], None]]:
    """Shows progress: a bar on a terminal, elsewhere a line for each thing that is begun, nothing without a stream."""
    if stream is None:
        yield lambda what, done, total: None
        return
    last = ""
    if not stream.isatty():

        def tell(what: str, done: int, total: int) -> None:
            nonlocal last
            if what != last:
                print(f"{what} …", file=stream, flush=True)
            last = what

        yield tell
        return
    with new_bars(stream) as bars:
        task = bars.add_task("", total=None, steps="", details="")

        def show(what: str, done: int, total: int) -> None:
            shown = f"{done:,} of {total:,} rows" if what.endswith("database") else f"{size(done)} of {size(total)}"
            bars.update(task, description=what, completed=done, total=total or None, steps=shown)

        yield show
