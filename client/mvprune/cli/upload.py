"""mvpctl upload"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.filter import add_filter_of
from mvprune.cli.shared.options import command_parser, connect, subcommand
from mvprune.cli.shared.output import answer, print_table
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import one_of, path
from mvprune.cli.shared.uploads import sending
from mvprune.client.tables import UPLOAD_COLUMNS, upload_rows
from mvprune.common.units import size
from mvprune.sources.uploads import Kind

if TYPE_CHECKING:
    from mvprune.client.upload_models import Upload

_HELP = """usage: mvpctl upload create|list|delete ...

Models and data files that were sent to the server. `mvpctl submit` and `mvpctl sweep create` send what they are given
by themselves; docs/uploads.md explains it.

example:
  mvpctl upload create ./my-model
  mvpctl upload list
  mvpctl upload delete 3f2a91c0b7de"""


def upload_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    return subcommand("upload", _HELP, {"create": _create, "list": _list, "delete": _delete}, argv)


def _create(argv: Sequence[str]) -> None:
    details = (
        "Sends a model's folder or a data file, and prints the reference by which jobs of the project name it. What "
        "the server has already is not sent. Run again, it resumes an interrupted upload."
    )
    example = "mvpctl upload create ./my-model\n  mvpctl upload create train.jsonl --validate-only -o json"
    parser = command_parser("upload create", example, details, job=False)
    parser.add_argument("path", type=path, metavar="PATH", help="a model's folder or a data file")
    parser.add_argument("--kind", type=one_of(*Kind), help="model or data; default: model for a folder, else data")
    parser.add_argument("--validate-only", action="store_true", help="check it, its size and the quota; send nothing")
    args = parser.parse_args(argv)
    with connect(args) as client, sending(args.form, only_checks=args.validate_only) as show:
        upload = client.upload(args.path, kind=args.kind, on_progress=show, validate_only=args.validate_only)
    answer(args.form, upload, [upload.reference], lambda: print(clean(_line(upload, only_checked=args.validate_only))))


def _line(upload: Upload, *, only_checked: bool) -> str:
    files = f"{len(upload.files)} files, " if upload.kind == Kind.MODEL else ""
    done = "valid" if only_checked else "sent"
    rows = "; its rows are checked by a job that names it" if upload.kind == Kind.DATA else ""
    return f"{done}: {upload.display_name} ({files}{size(upload.total_bytes)}){rows}\n{upload.reference}"


def _list(argv: Sequence[str]) -> None:
    details = "Lists uploads. --quiet prints their references, which jobs take in place of a path."
    example = "mvpctl upload list --filter 'kind = MODEL' --order-by 'total_bytes desc'"
    parser = command_parser("upload list", example, details, job=False)
    fields = "kind, display_name, creator, total_bytes, create_time, ready_time"
    add_filter_of(parser, fields, "create_time, total_bytes or display_name")
    args = parser.parse_args(argv)
    with connect(args) as client:
        uploads = list(client.uploads(filter=args.filter, order_by=args.order_by))

    def text() -> None:
        print_table(UPLOAD_COLUMNS, upload_rows(uploads), expendable=("CREATOR", "CREATED (UTC)", "KIND"))

    answer(args.form, uploads, [upload.reference for upload in uploads], text)


def _delete(argv: Sequence[str]) -> None:
    details = "Deletes an upload that no job uses. The server does that by itself after a while."
    example = "mvpctl upload delete 3f2a91c0b7de"
    parser = command_parser("upload delete", example, details, job=False)
    parser.add_argument("upload", metavar="UPLOAD", help="a reference, a digest, or at least its first 8 digits")
    args = parser.parse_args(argv)
    with connect(args) as client:
        client.delete_upload(args.upload)
    answer(args.form, {"deleted": args.upload}, [args.upload], lambda: print(clean(f"upload {args.upload} deleted")))
