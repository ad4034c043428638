"""mvpctl audit"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.filter import add_filter_of
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import Form, answer, print_data, print_table
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import positive_number
from mvprune.client.filters import all_of, quoted
from mvprune.client.tables import AUDIT_COLUMNS, audit_rows

if TYPE_CHECKING:
    from mvprune.client.admin import AuditEntry
    from mvprune.client.client import Client

_DETAILS = (
    'Lists the calls that changed something or were refused, newest first; the project "-" stands for all. It needs a '
    "token of the scope admin. JSON with --follow has an entry a line."
)
_PAUSE = 2.0  # seconds between questions of --follow
_LATE = timedelta(seconds=60)  # by which an entry may appear after a younger one: servers write at the same time


def audit_command(argv: Sequence[str]) -> None:
    """Lists entries of the audit."""
    example = (
        "mvpctl audit --filter 'method = DeleteJob AND create_time > \"2026-01-31T12:00:00Z\"'\n"
        "  mvpctl audit --project - --filter 'code != OK' --follow"
    )
    parser = command_parser("audit", example, _DETAILS, job=False)
    fields = "principal, method, code, resource, project, address, request_id, create_time"
    add_filter_of(parser, fields, "create_time")
    parser.add_argument("--limit", type=positive_number, default=50, metavar="N", help="at most; default: 50")
    parser.add_argument("-f", "--follow", action="store_true", help="also show what comes, until Ctrl-C")
    args = parser.parse_args(argv)
    if args.follow and args.order_by:
        raise UsageError("--order-by must be used without --follow, which shows the oldest first", parser.prog)
    with connect(args) as client:
        listed = client.admin.audit(client.project, filter=args.filter, order_by=args.order_by, limit=args.limit)
        entries = list(listed)
        if args.follow:
            _print_all(_following(client, args.filter, entries[::-1]), args.form)
    ids = [entry.id for entry in entries]
    answer(args.form, entries, ids, lambda: print_table(AUDIT_COLUMNS, audit_rows(entries)))


def _following(client: Client, wanted: str, first: Sequence[AuditEntry]) -> Iterator[AuditEntry]:
    """The entries given, and those that come, without end."""
    known: dict[str, datetime] = {}
    found: Iterable[AuditEntry] = first
    while True:
        for entry in found:
            if entry.name not in known and entry.create_time is not None:
                known[entry.name] = entry.create_time
                yield entry
        time.sleep(_PAUSE)
        since = ""
        if known:
            begin = max(known.values()) - _LATE
            known = {name: at for name, at in known.items() if at >= begin}
            since = f"create_time >= {quoted(begin.isoformat())}"
        found = client.admin.audit(client.project, filter=all_of(wanted, since), order_by="create_time")


def _print_all(entries: Iterable[AuditEntry], form: Form) -> None:
    for entry in entries:
        if form.is_data:
            print_data(entry, form.output, one_of_many=True)
        elif form.quiet:
            print(clean(entry.id), flush=True)
        else:
            print(clean("  ".join(filter(None, audit_rows([entry])[0]))), flush=True)
