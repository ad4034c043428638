"""`python -m mvprune_service.probe`: asks the server of a home folder for its health, for a container's health check.

It needs neither a token nor the server's settings: server.json in the home folder has the address and the CA.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# A failed connection must not print gRPC's own lines.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_OK, _NOT_SERVING, _REFUSED, _UNREACHABLE = 0, 1, 2, 7  # those of mvpctl
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 (replaced, not listened on)
_CODES = {"SERVING": _OK, "NOT_SERVING": _NOT_SERVING}


class Unreachable(Exception):
    """The server's health is not known; the text says why."""


@dataclass(frozen=True)
class Found:
    """The answer of a server: SERVING or NOT_SERVING."""

    address: str
    status: str


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if the server is SERVING, 1 if it is NOT_SERVING, 2 for wrong options, 7 if it cannot be reached."""
    parser = argparse.ArgumentParser(
        prog="python -m mvprune_service.probe",
        description="Ask the server of a home folder on this machine for its health.\n\n"
        "Exit code 0: SERVING; 1: NOT_SERVING; 7: no server can be reached. If the clients' port needs a client's "
        "certificate,\nMVPRUNE_CLIENT_CERT and MVPRUNE_CLIENT_KEY name one.",
        epilog="example:\n  python -m mvprune_service.probe --home /var/lib/mvprune",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--home", metavar="FOLDER", help="the server's; default: MVPRUNE_HOME, else ~/.mvprune")
    parser.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=5.0, help="default: 5")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    args = parser.parse_args(argv)
    home = Path(args.home or os.environ.get("MVPRUNE_HOME") or Path.home() / ".mvprune")
    try:
        found = probe(home, args.timeout)
    except Unreachable as error:
        print(f"error: {error}", file=sys.stderr)
        return _UNREACHABLE
    print(json.dumps(asdict(found)) if args.output == "json" else f"{found.address} {found.status}")
    return _CODES[found.status]


def probe(home: Path, timeout: float) -> Found:
    """The health of the server that uses a home folder.

    Args:
        timeout: seconds for the connection and for the answer, each.

    Raises:
        Unreachable: no server has started with this folder, or it does not answer.
    """
    address, ca = _started(home)
    host, _, port = address.rpartition(":")
    target = f"{_WILDCARDS.get(host, host)}:{port}"
    try:
        with _channel(target, ca, timeout) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout)
    except OSError as error:  # ssl's errors too
        raise Unreachable(f"no server answers at {target} ({error.strerror or error})") from None
    except grpc.RpcError as error:
        raise Unreachable(f"no server answers at {target} ({error.details()}){_hint(ca)}") from None
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return Found(target, "SERVING" if serving else "NOT_SERVING")


def _started(home: Path) -> tuple[str, str | None]:
    """Address and CA of a server, which it writes when it serves."""
    file = home / "server.json"
    try:
        status = json.loads(file.read_text())
        return str(status["address"]), status.get("ca")
    except FileNotFoundError:
        raise Unreachable(f"no server serves with the home folder {home}; name another with --home") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{file} cannot be read ({error})") from None


def _channel(target: str, ca: str | None, timeout: float) -> grpc.Channel:
    if ca is None:
        return grpc.insecure_channel(target, _options())
    # The certificate is for the name that clients use, which this machine need not know: the name is taken from the
    # certificate itself, after its signature has been verified.
    name = _verified_name(target, ca, timeout)
    certificate, key = (os.environ.get(f"MVPRUNE_CLIENT_{part}") for part in ("CERT", "KEY"))
    credentials = grpc.ssl_channel_credentials(
        Path(ca).read_bytes(),
        Path(key).read_bytes() if key else None,
        Path(certificate).read_bytes() if key and certificate else None,
    )
    return grpc.secure_channel(target, credentials, [*_options(), ("grpc.ssl_target_name_override", name)])


def _options() -> list[tuple[str, Any]]:
    return [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]


def _verified_name(target: str, ca: str, timeout: float) -> str:
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # `ca` may be the server's certificate itself
    context.set_alpn_protocols(["h2"])
    host, _, port = target.rpartition(":")
    with (
        socket.create_connection((host.strip("[]"), int(port)), timeout) as connection,
        context.wrap_socket(connection) as secure,
    ):
        certificate: Any = secure.getpeercert()
    names = [value for _, value in certificate.get("subjectAltName", ())]
    if not names:
        raise Unreachable(f"the certificate of the server at {target} has no name (subjectAltName)")
    return str(names[0]).replace("*", "any", 1)


def _hint(ca: str | None) -> str:
    if ca is None or os.environ.get("MVPRUNE_CLIENT_CERT"):
        return ""
    return "; if it needs a client's certificate, name one with MVPRUNE_CLIENT_CERT and MVPRUNE_CLIENT_KEY"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 600:
        raise ValueError(text)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
