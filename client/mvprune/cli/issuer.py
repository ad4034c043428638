"""mvpctl issuer"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.options import Parser, command_parser, connect, subcommand
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.cli.shared.text import clean
from mvprune.client import tables
from mvprune.client.issuers import Issuer, IssuerRule
from mvprune.common.files import decode_text

_HELP = """usage: mvpctl issuer create|list|get|update|delete ...

Issuers of OpenID Connect, such as GitHub, GitLab and Kubernetes, whose tokens the server accepts beside its own. All
servers follow a change within seconds. All commands need an operator's token of the scope admin.

example:
  mvpctl issuer create https://token.actions.githubusercontent.com --id github --audience mvprune.example \\
      --claim repository_id=123456789 --claim environment=production --grant search:submit
  mvpctl issuer update github --rules rules.toml
  mvpctl issuer list"""
_RULES = (
    "TOML file with tables [[rule]] of claims, project and scope, as in --issuers-file of the server; in place of "
    "--claim and --grant"
)


def issuer_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    known = {"create": _create, "list": _list, "get": _get, "update": _update, "delete": _delete}
    return subcommand("issuer", _HELP, known, argv)


def _parser(name: str, example: str, details: str, *, issuer: bool = True) -> Parser:
    parser = command_parser(f"issuer {name}", f"mvpctl issuer {name} {example}".rstrip(), details, job=False)
    if issuer:
        parser.add_argument("id", metavar="ID", help="an issuer's id")
    return parser


def _add_content(parser: Parser, *, is_new: bool) -> None:
    parser.add_argument("--audience", required=is_new, help="that tokens must be made for, such as the server's name")
    parser.add_argument(
        "--claim",
        type=_claim,
        action="append",
        metavar="NAME=VALUE",
        help="a text that a token must have; may be repeated: all must be there",
    )
    parser.add_argument("--grant", type=_grant, metavar="PROJECT:SCOPE", help="what it is valid for: search:submit")
    parser.add_argument("--rules", type=Path, metavar="FILE", help=_RULES)
    parser.add_argument("--jwks-url", help="of its keys; default: its configuration says where they are")
    parser.add_argument("--jwks", type=Path, metavar="FILE", help="its keys, where the server does not reach it")


def _create(argv: Sequence[str]) -> None:
    details = "Accepts the tokens of another issuer that have certain claims."
    example = "https://gitlab.example --audience mvprune.example --claim project_path=acme/models --grant search:submit"
    parser = _parser("create", example, details, issuer=False)
    parser.add_argument("url", metavar="URL", help="https://…, as the iss of its tokens")
    parser.add_argument("--id", default="", help="letters, digits and hyphens; default: the server chooses one")
    _add_content(parser, is_new=True)
    args = parser.parse_args(argv)
    rules, jwks = _rules(args, parser), _text(args.jwks, parser)
    if rules is None:
        raise UsageError("--claim and --grant, or --rules, must be given: they say which tokens are valid", parser.prog)
    with connect(args) as client:
        issuer = client.issuers.create(
            args.url, args.audience, rules, jwks_url=args.jwks_url or "", jwks=jwks or "", issuer_id=args.id
        )
    answer(args.form, issuer, [issuer.id], lambda: _print(issuer))


def _list(argv: Sequence[str]) -> None:
    args = _parser("list", "", "Lists issuers, by name.", issuer=False).parse_args(argv)
    with connect(args) as client:
        issuers = list(client.issuers.list())
    rows = tables.issuer_rows(issuers)
    answer(args.form, issuers, [one.id for one in issuers], lambda: print_table(tables.ISSUER_COLUMNS, rows))


def _get(argv: Sequence[str]) -> None:
    args = _parser("get", "github", "Shows an issuer.").parse_args(argv)
    with connect(args) as client:
        issuer = client.issuers.get(args.id)
    answer(args.form, issuer, [issuer.id], lambda: _print(issuer))


def _update(argv: Sequence[str]) -> None:
    parser = _parser("update", "github --rules rules.toml", "Changes what is given. Rules replace all that there were.")
    _add_content(parser, is_new=False)
    args = parser.parse_args(argv)
    rules, jwks = _rules(args, parser), _text(args.jwks, parser)
    with connect(args) as client:
        issuer = client.issuers.update(args.id, audience=args.audience, rules=rules, jwks_url=args.jwks_url, jwks=jwks)
    answer(args.form, issuer, [issuer.id], lambda: _print(issuer))


def _delete(argv: Sequence[str]) -> None:
    args = _parser("delete", "github", "Deletes an issuer. Its tokens are not accepted any more.").parse_args(argv)
    with connect(args) as client:
        client.issuers.delete(args.id)
    answer(args.form, {"deleted": args.id}, [args.id], lambda: print(clean(f"issuer {args.id} is deleted")))


def _rules(args: argparse.Namespace, parser: Parser) -> list[IssuerRule] | None:
    """The rules that are given; None: none are."""
    if args.rules is not None:
        if args.claim or args.grant:
            raise UsageError("--rules must be used without --claim and --grant", parser.prog)
        return _of_file(args.rules, parser)
    if bool(args.claim) != bool(args.grant):
        raise UsageError("--claim and --grant must be used together: which tokens, and what for", parser.prog)
    return [IssuerRule(dict(args.claim), *args.grant)] if args.claim else None


def _of_file(file: Path, parser: Parser) -> list[IssuerRule]:
    try:
        found: dict[str, Any] = tomllib.loads(_text(file, parser) or "")
        rules = found.pop("rule")
        if found or not isinstance(rules, list):
            raise TypeError
        return [IssuerRule(dict(one.pop("claims")), one.pop("project"), **one) for one in rules]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        text = f"--rules {file} must have tables [[rule]] with claims, project and scope, and nothing else{why}"
        raise UsageError(text, parser.prog) from None


def _text(file: Path | None, parser: Parser) -> str | None:
    try:
        return None if file is None else decode_text(file.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read ({why})", parser.prog) from None


def _claim(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    return name, value


def _grant(text: str) -> tuple[str, str]:
    project, _, scope = text.partition(":")
    if not project or scope not in ("read", "submit", "admin"):
        raise argparse.ArgumentTypeError(f"must be PROJECT:SCOPE with the scope read, submit or admin, got {text!r}")
    return project, scope


def _print(issuer: Issuer) -> None:
    print_fields(tables.issuer_fields(issuer))
