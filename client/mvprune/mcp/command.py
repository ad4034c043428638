"""mvpctl mcp"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mvprune.cli.shared.commands import CONNECTION
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import command_parser
from mvprune.cli.shared.types import path
from mvprune.common.addresses import is_loopback, split_address
from mvprune.common.exceptions import bad_field

_DEFAULT = "127.0.0.1:7072"
_DETAILS = """Speaks the Model Context Protocol on stdin and stdout, or with --http over streamable HTTP. Tools only
read, except with --allow-changes. On stdin and stdout calls have your token; over HTTP each has that of its caller,
Authorization: Bearer TOKEN. docs/mcp.md has the settings of common clients."""
_EXAMPLE = """mvpctl mcp --allow-changes --downloads artifacts/
  mvpctl mcp --http 127.0.0.1:7072"""


def mcp_command(argv: Sequence[str]) -> None:
    """Serves agents until stdin ends; over HTTP until SIGTERM or Ctrl-C."""
    args = _parser().parse_args(argv)
    if args.allow_host and not args.http:
        raise UsageError("--allow-host must be used with --http", "mvpctl mcp")
    if args.token_file and args.http:
        raise UsageError("--token-file must be unset with --http: each caller has a token of its own", "mvpctl mcp")
    with refusals("mcp"):
        from mvprune.mcp.tool import Rights

        rights = Rights(args.allow_changes, _folder(args.downloads, "downloads"), _folder(args.files, "files"))
        connection = {name: getattr(args, name) for name in CONNECTION}
        if args.http:
            del connection["token_file"]
            _serve_http(args, rights, connection)
        else:
            # Ctrl-C ends the process: a thread waits for stdin, and asyncio would wait for that thread.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            asyncio.run(_serve_stdio(rights, connection))


async def _serve_stdio(rights: Any, connection: dict[str, Any]) -> None:
    from mcp.server.stdio import stdio_server

    from mvprune.client.async_client import AsyncClient
    from mvprune.mcp.server import make_server, one_client

    async with AsyncClient(**connection) as client:
        server = make_server(rights, one_client(client))
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())


def _serve_http(args: argparse.Namespace, rights: Any, connection: dict[str, Any]) -> None:
    from mvprune.mcp.http import PATH, application, clients_of_callers, run
    from mvprune.mcp.server import make_server

    host, port = args.http
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise bad_field(
            "--http", f"must be an address with a free port, got {host}:{port} ({error.strerror})"
        ) from None
    with listening:
        port = listening.getsockname()[1]
        app = application(make_server(rights, clients_of_callers(connection)), port, args.allow_host or ())
        print(f"serving agents at http://{f'[{host}]' if ':' in host else host}:{port}{PATH}", file=sys.stderr)
        run(app, listening)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("mcp", _EXAMPLE, _DETAILS, job=False, output=False)
    parser.add_argument(
        "--http",
        nargs="?",
        const=_DEFAULT,
        type=_loopback,
        metavar="HOST:PORT",
        help=f"serve over HTTP, at an address of this machine only; default: {_DEFAULT}",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="with --http, a name that a proxy with TLS on this machine is called by; may be repeated",
    )
    parser.add_argument(
        "--allow-changes", action="store_true", help="also submit, cancel, retry and delete jobs and sweeps"
    )
    parser.add_argument("--downloads", type=path, metavar="DIR", help="artifacts may be written below this folder")
    parser.add_argument(
        "--files", type=path, metavar="DIR", help="models and data of this machine below this folder may be sent"
    )
    return parser


def _loopback(text: str) -> tuple[str, int]:
    """HOST:PORT of this machine."""
    with contextlib.suppress(ValueError):
        host, port = split_address(text)
        if is_loopback(host):
            return ("127.0.0.1" if host == "localhost" else host.strip("[]")), port
    rule = f"must be a loopback address and a port, such as {_DEFAULT}, got {text!r}; a proxy with TLS serves others"
    raise argparse.ArgumentTypeError(rule)


def _folder(given: Path | None, option: str) -> Path | None:
    """A folder that is there, without links. Raises InvalidArgument."""
    if given is None:
        return None
    folder = given.expanduser()
    if not folder.is_dir():
        raise bad_field(f"--{option}", f"must be a folder, got {given}")
    return folder.resolve()
