"""mvpctl token"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mvprune.cli.shared.filter import add_filter_of
from mvprune.cli.shared.options import command_parser, connect, subcommand
from mvprune.cli.shared.output import answer, print_table
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import duration, one_of
from mvprune.client.names import job_name
from mvprune.client.tables import TOKEN_COLUMNS, token_rows
from mvprune.common.units import timestamp

if TYPE_CHECKING:
    from mvprune.client.admin import NewToken

_HELP = """usage: mvpctl token create|list|revoke|share|whoami ...

API tokens: what a server that listens beyond its own machine asks for. Clients find theirs in MVPRUNE_TOKEN, or in the
file that --token-file names; on the server's own machine, mvpctl finds the operator's by itself.

example:
  mvpctl token create --project search --scope submit --ttl 30d
  mvpctl token list --project search
  mvpctl token revoke token-k3h9x2m4qz --project search
  mvpctl token share sst2-k3x9 --ttl 7d
  mvpctl token whoami"""
_ALL = 'the project "-" stands for all: its tokens are operators\''


def token_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    return subcommand(
        "token", _HELP, {"create": _create, "list": _list, "revoke": _revoke, "share": _share, "whoami": _whoami}, argv
    )


def _create(argv: Sequence[str]) -> None:
    details = f"Creates a token and prints its secret, which cannot be shown again; {_ALL}."
    parser = command_parser(
        "token create", "mvpctl token create --project search --scope submit --ttl 30d", details, job=False
    )
    parser.add_argument(
        "--scope",
        type=one_of("read", "submit", "admin"),
        required=True,
        help="read; submit: also create, cancel, retry, delete; admin: also manage the project's tokens",
    )
    parser.add_argument("--ttl", type=duration, metavar="TIME", help="30d, 12h, 90m; default: it never expires")
    parser.add_argument("--name", default="", help="what it is for")
    args = parser.parse_args(argv)
    with connect(args) as client:
        token = client.admin.create_token(client.project, args.scope, ttl=args.ttl, display_name=args.name)
    answer(args.form, token, [token.secret], lambda: _print_new(token))


def _print_new(token: NewToken) -> None:
    where = token.resource or f"the project {token.project}"
    print(clean(f"{token.id}: {token.scope} in {where}, {_until(token.expire_time)}. The secret:"), file=sys.stderr)
    print(clean(token.secret))


def _until(time: datetime | None) -> str:
    return f"until {timestamp(time)} UTC" if time else "for ever"


def _share(argv: Sequence[str]) -> None:
    details = (
        "Creates a token that shows one job or one sweep, with its jobs and artifacts, and nothing else. It prints the "
        "secret, which cannot be shown again; mvpctl token revoke ends it."
    )
    parser = command_parser(
        "token share",
        "mvpctl token share sst2-k3x9 --ttl 7d\n  mvpctl token share --sweep densities",
        details,
        job=False,
    )
    shared = parser.add_mutually_exclusive_group(required=True)
    shared.add_argument("job", nargs="?", metavar="JOB", help="a job's id, or its name projects/P/jobs/J")
    shared.add_argument("--sweep", metavar="SWEEP", help="a sweep's id")
    parser.add_argument("--ttl", type=duration, metavar="TIME", help="at most 90d; default: 7d")
    parser.add_argument("--name", default="", help="what it is for")
    args = parser.parse_args(argv)
    with connect(args) as client:
        name = f"projects/{client.project}/sweeps/{args.sweep}" if args.sweep else job_name(args.job, client.project)
        token = client.admin.share(name, ttl=args.ttl, display_name=args.name)
    answer(args.form, token, [token.secret], lambda: _print_new(token))


def _whoami(argv: Sequence[str]) -> None:
    parser = command_parser(
        "token whoami", "mvpctl token whoami", "Shows whose token this client sends, and what it may do.", job=False
    )
    args = parser.parse_args(argv)
    with connect(args) as client:
        caller = client.admin.caller()
    where = caller.resource or ("all projects" if caller.project == "-" else f"the project {caller.project}")
    text = f"{caller.id}: {caller.scope} in {where}, {_until(caller.expire_time)}"
    answer(args.form, caller, [caller.id], lambda: print(clean(text)))


def _list(argv: Sequence[str]) -> None:
    example = "mvpctl token list --project search --filter 'scope = ADMIN' --order-by last_use_time"
    parser = command_parser("token list", example, f"Lists tokens; {_ALL}.", job=False)
    fields = "scope, resource, display_name, creator, create_time, expire_time, revoke_time, last_use_time"
    add_filter_of(parser, fields, "create_time, expire_time, last_use_time or display_name")
    args = parser.parse_args(argv)
    with connect(args) as client:
        tokens = list(client.admin.tokens(client.project, filter=args.filter, order_by=args.order_by))
    answer(args.form, tokens, [token.id for token in tokens], lambda: print_table(TOKEN_COLUMNS, token_rows(tokens)))


def _revoke(argv: Sequence[str]) -> None:
    details = f"Revokes a token for ever; replicas of the server reject it within seconds; {_ALL}."
    parser = command_parser("token revoke", "mvpctl token revoke token-k3h9x2m4qz --project search", details, job=False)
    parser.add_argument("id", metavar="ID", help="a token's id")
    args = parser.parse_args(argv)
    with connect(args) as client:
        token = client.admin.revoke_token(client.project, args.id)
    answer(args.form, token, [token.id], lambda: print(clean(f"token {token.id} is revoked")))
