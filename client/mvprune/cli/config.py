"""mvpctl config"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.options import Parser, plain_parser, subcommand
from mvprune.cli.shared.output import Form, answer, print_data, print_table
from mvprune.cli.shared.types import one_of
from mvprune.client import contexts, endpoint
from mvprune.common.files import expanded
from mvprune.common.suggestions import must_be_one_of

_HELP = """usage: mvpctl config view|set|unset|use|path ...

Shows and changes this client's settings: a file with one context for each server. A command's option overrides its
environment variable, which overrides the file. MVPRUNE_CONTEXT overrides `use`; MVPRUNE_CONFIG names another file.

settings:
  address      HOST:PORT, or grpcs://HOST:PORT for TLS
  project      the project of jobs that are given only by their id
  token_file   a file with the API token, which is sent only to the context's address
  token        the API token itself, read from stdin
  ca_cert      CA certificate for the server, PEM
  output       text, json or yaml

example:
  mvpctl config set address grpcs://mvprune.example.com:7070 --context work
  mvpctl config set token_file ~/work.token --context work
  mvpctl config use work
  mvpctl config view"""
_VARIABLES = {
    "address": "MVPRUNE_ADDRESS",
    "project": "MVPRUNE_PROJECT",
    "token_file": "MVPRUNE_TOKEN_FILE",
    "token": "MVPRUNE_TOKEN",
    "ca_cert": "MVPRUNE_CA_CERT",
    "output": "MVPRUNE_OUTPUT",
}
_CHECKS = {"address": endpoint.check_address, "project": endpoint.check_project, "token": endpoint.check_token}
_SECRET = "(not shown)"  # noqa: S105 (stands for one)


def config_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    known = {"view": _view, "set": _set, "unset": _unset, "use": _use, "path": _path}
    return subcommand("config", _HELP, known, argv)


def _view(argv: Sequence[str]) -> None:
    parser = plain_parser(
        "config view", "mvpctl config view -o yaml", "Shows the settings that count, and where each comes from."
    )
    args = parser.parse_args(argv)
    config = contexts.load()
    value = _described(config)

    def text() -> None:
        others = sorted({config.context, *config.contexts})
        print(f"context {config.context} of {', '.join(others)}; {contexts.path()}")
        rows = [[one["setting"], one["value"], one["from"]] for one in value["settings"]]
        print_table(["SETTING", "VALUE", "FROM"], rows)

    answer(args.form, value, sorted(config.contexts), text)


def _described(config: contexts.Config) -> dict[str, Any]:
    settings = [{"setting": name, **_effective(name, config)} for name in contexts.SETTINGS]
    named = {
        name: {key: _shown(key, value) for key, value in settings.items()} for name, settings in config.contexts.items()
    }
    return {"path": str(contexts.path()), "context": config.context, "contexts": named, "settings": settings}


def _set(argv: Sequence[str]) -> None:
    parser = _changing("set", "mvpctl config set token_file ~/work.token --context work")
    parser.add_argument("value", metavar="VALUE", nargs="?", help="a token is read from stdin instead")
    args = parser.parse_args(argv)
    value = _checked(args.setting, args.value, parser)
    _change(contexts.read(), args, value)


def _unset(argv: Sequence[str]) -> None:
    args = _changing("unset", "mvpctl config unset token_file --context work").parse_args(argv)
    _change(contexts.read(), args, None)


def _use(argv: Sequence[str]) -> None:
    parser = _mending("use", "mvpctl config use work", "Makes a context the current one.")
    parser.add_argument("context", metavar="CONTEXT", help="its name")
    args = parser.parse_args(argv)
    config = contexts.read()
    if args.context not in config.contexts:
        raise UsageError(f"CONTEXT {contexts.must_be_a_context(config, args.context)}", parser.prog)
    _save(contexts.Config(args.context, config.contexts), args.form)


def _path(argv: Sequence[str]) -> None:
    args = _mending("path", "mvpctl config path", "Prints where the file is, or would be.").parse_args(argv)
    path = str(contexts.path())
    answer(args.form, {"path": path}, [path], lambda: print(path))


def _changing(name: str, example: str) -> Parser:
    parser = _mending(name, example, f"{name.capitalize()}s a setting of a context.")
    parser.add_argument(
        "setting", metavar="SETTING", type=one_of(*contexts.SETTINGS), help=", ".join(contexts.SETTINGS)
    )
    parser.add_argument("--context", metavar="NAME", help="default: the current one; a new name creates a context")
    return parser


def _mending(name: str, example: str, details: str) -> Parser:
    """A parser of a command that works whatever is wrong with the file: what the file says of the form is not asked."""
    parser = plain_parser(f"config {name}", example, details)
    parser.set_defaults(output="text")
    return parser


def _change(config: contexts.Config, args: argparse.Namespace, value: str | None) -> None:
    name = contexts.check_name(args.context or os.environ.get("MVPRUNE_CONTEXT") or config.context)
    _save(config.with_setting(name, args.setting, value), args.form)


def _save(config: contexts.Config, form: Form) -> None:
    contexts.save(config)
    if form.is_data:
        print_data(_described(config), form.output)


def _checked(setting: str, value: str | None, parser: Parser) -> str:
    """The value as it is kept. Raises UsageError."""
    if setting == "token":
        if value is not None:
            text = "token must be on stdin, got an argument, which stays in the shell's history; or set token_file"
            raise UsageError(text, parser.prog)
        value = sys.stdin.readline().strip()
    if not value or not value.isprintable():
        raise UsageError(
            f"{setting} must be printable text, got {'nothing' if not value else 'control characters'}", parser.prog
        )
    if setting == "output" and value not in contexts.FORMS:
        raise UsageError(f"output {must_be_one_of(contexts.FORMS, value)}", parser.prog)
    if check := _CHECKS.get(setting):
        check(value)
    if setting in ("token_file", "ca_cert"):
        return str(expanded(value).absolute())
    return value


def _effective(name: str, config: contexts.Config) -> dict[str, Any]:
    """The value of a setting, as far as it can be shown, and where it comes from."""
    variable = _VARIABLES.get(name, "")
    if given := os.environ.get(variable):
        return {"value": _shown(name, given), "from": variable}
    if name in config.current:
        return {"value": _shown(name, config.current[name]), "from": f"context {config.context}"}
    defaults = {"address": endpoint.default_address(), "project": endpoint.DEFAULT_PROJECT, "output": "text"}
    return {"value": defaults.get(name, ""), "from": "default" if name in defaults else ""}


def _shown(name: str, value: str) -> str:
    return _SECRET if name == "token" else value
