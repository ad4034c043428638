"""mvpctl console, and mvprune-console"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import LocalRefusal, UsageError
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import command_parser
from mvprune.cli.shared.output import print_data
from mvprune.cli.shared.text import clean
from mvprune.common.addresses import is_loopback, split_address
from mvprune.common.files import expanded

if TYPE_CHECKING:
    import socket

    from mvprune.console.issuer import Provider
    from mvprune.console.settings import Settings

_EXAMPLE = "mvpctl console\n  mvpctl console --login --listen 127.0.0.1:8090 --host-name console.example.com"
_DETAILS = """The console is a client of the server, with the address and the token of the other commands. It prints an
address with a key: who has it may do what the token may. Ctrl-C ends it.

With --login, which mvprune-console has by itself, it is for many users: each logs in with a token of the server, and
the console itself has none. Put a proxy with HTTPS before it, and name the host that browsers call with --host-name.
--sessions keeps users logged in over restarts: each file in the folder opens only with the cookie of its browser."""
_ADDRESS = ("127.0.0.1", 0)
_ADDRESS_OF_MANY = ("127.0.0.1", 8090)
_SOME_TOKEN = "of-a-user"  # noqa: S105 (none of a server: it stands for those to come)


@dataclass(frozen=True)
class Started:
    """A console that listens: the address to be opened, and that of the server."""

    url: str
    server: str


def main() -> int:
    """mvprune-console: the console for many users."""
    from mvprune.cli._app import main as run

    return run(["console", "--login", *sys.argv[1:]])


def console_command(argv: Sequence[str]) -> ExitCode:
    """Runs the console until Ctrl-C or SIGTERM."""
    parser = command_parser("console", _EXAMPLE, _DETAILS, job=False)
    parser.add_argument("--login", action="store_true", help="users log in with tokens of their own")
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help="default: 127.0.0.1 and a free port; with --login 127.0.0.1:8090",
    )
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that browsers call the console by, through HTTPS; only with --login; may be repeated",
    )
    parser.add_argument(
        "--sessions",
        type=Path,
        metavar="FOLDER",
        help="keeps users logged in when the console restarts; only with --login; default: in memory",
    )
    parser.add_argument("--issuer", metavar="URL", help="of OpenID Connect, by which users can log in; with --login")
    parser.add_argument("--client-id", metavar="ID", help="of the console at the issuer")
    parser.add_argument("--client-secret-file", metavar="FILE", help="its secret; default: none, PKCE only")
    parser.add_argument(
        "--scopes", default="openid", metavar="WORDS", help="that are asked of the issuer; default: openid"
    )
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    args = parser.parse_args(argv)
    if args.host_name and not args.login:
        raise UsageError("--host-name: is for many users; it needs --login", parser.prog)
    if args.sessions and not args.login:
        raise UsageError("--sessions: is for many users; it needs --login", parser.prog)
    if bool(args.issuer) != bool(args.client_id) or (args.issuer and not args.login):
        raise UsageError("--issuer: is given with --client-id and --login only", parser.prog)
    if not args.login and args.listen and not is_loopback(args.listen[0]):
        raise UsageError(
            f"--listen must be an address that only this machine reaches, got {args.listen[0]}: who has the key has "
            "your token; --login is for other users",
            parser.prog,
        )
    with refusals("console"):
        from mvprune.console import app  # noqa: F401 (what is not installed is said before anything else)

        return _serve(args, _settings(args))


def _settings(args: argparse.Namespace) -> Settings:
    from mvprune.client import endpoint
    from mvprune.console.settings import Settings

    token = {"token": _SOME_TOKEN} if args.login else {"token_file": args.token_file}
    found = endpoint.find(args.address, **token, ca_cert=args.ca_cert, insecure=args.insecure)
    project = endpoint.project(args.project)
    if not args.login:
        return Settings(found, project, key=secrets.token_urlsafe(24), secure=False)
    is_local = is_loopback((args.listen or _ADDRESS_OF_MANY)[0]) and not args.host_name
    provider = _provider(args) if args.issuer else None
    names = tuple(args.host_name)
    return Settings(
        found.with_token(""),
        project,
        secure=not is_local,
        provider=provider,
        host_names=names,
        sessions=expanded(args.sessions).absolute() if args.sessions else None,
    )


def _provider(args: argparse.Namespace) -> Provider:
    from mvprune.common.files import read_secret
    from mvprune.common.openid import check_url
    from mvprune.console.issuer import Provider

    try:
        check_url(args.issuer)
    except ValueError as error:
        raise UsageError(f"--issuer {error}, got {args.issuer!r}", "mvpctl console") from None
    try:
        secret = read_secret(Path(args.client_secret_file)) if args.client_secret_file else ""
    except ValueError as error:
        raise UsageError(f"--client-secret-file {error}", "mvpctl console") from None
    return Provider(args.issuer, args.client_id, secret, args.scopes)


def _serve(args: argparse.Namespace, settings: Settings) -> ExitCode:
    from mvprune.console.app import application
    from mvprune.console.server import run

    once = "" if args.login or args.no_browser else secrets.token_urlsafe(24)
    try:
        console = application(settings, [once] if once else [])
    except OSError as error:
        reason = f"got {str(args.sessions)!r} ({error.strerror})"
        raise LocalRefusal(f"--sessions must be a folder that can be written, {reason}") from error
    with _listening(args) as listening:
        host, port = listening.getsockname()[:2]
        base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        url = f"{base}/start/{settings.key}" if settings.key else f"{base}/"
        if args.form.is_data:
            print_data(Started(url, settings.endpoint.address), args.form.output, one_of_many=True)
        else:
            print(url if args.form.quiet else clean(f"console of {settings.endpoint.address} on {url}"), flush=True)
        if once:
            _open_browser(f"{base}/start/{once}")
        run(console, listening)
    return ExitCode.OK


def _listening(args: argparse.Namespace) -> socket.socket:
    from mvprune.serving.server import listen

    host, port = args.listen or (_ADDRESS_OF_MANY if args.login else _ADDRESS)
    try:
        return listen(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise LocalRefusal(f"--listen must be an address with a free port, got {host}:{port}: {reason}") from error


def _open_browser(url: str) -> None:
    """Opens the address, once there is a server: connections wait for it. Others see the arguments of a browser's
    process, so the key in them is good for one start only."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _address(text: str) -> tuple[str, int]:
    try:
        host, port = split_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, got {text!r}") from None
    return ("127.0.0.1" if host == "localhost" else host.strip("[]")), port
