"""Ports: which addresses they may use, with which certificates and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import grpc

from mvprune.common import addresses
from mvprune_service.api.access.tls import TlsFiles
from mvprune_service.config import Settings
from mvprune_service.observability import descriptors

_MESSAGE_BYTES = 2 << 20  # more than a piece of a chunk, and than the description of the largest upload
_ADDRESSES = 4  # that it takes at least to use up a port's connections
_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
    # A connection that is not used is closed: clients connect again when they need to.
    ("grpc.server_handshake_timeout_ms", 5_000),  # of TLS and HTTP/2
    ("grpc.max_connection_idle_ms", 30_000),  # without a call
    ("grpc.keepalive_time_ms", 30_000),  # with calls whose client does not answer any more
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # by default 60 s, which the timeout above does not shorten
    # How often clients may ask whether the server is there; by default more than one ping in 300 s counts as abuse.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
    # Clients connect again now and then, and so find servers that have been added. Calls in progress end as usual.
    ("grpc.max_connection_age_ms", 300_000),
)


class PortError(Exception):
    """A port cannot be opened with these settings; the text says why and what to do."""


def is_loopback(address: str, option: str) -> bool:
    """Whether HOST:PORT can be reached from this machine only.

    Args:
        option: name of the option that sets the address, for the error.

    Raises:
        PortError: it is not HOST:PORT.
    """
    try:
        host, _ = addresses.split_address(address)
    except ValueError:
        form = f"HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070, with a port from 0 to {addresses.LAST_PORT}"
        raise PortError(f"{option} must be {form}, got {address!r}") from None
    return addresses.is_loopback(host)


def is_auth_required(settings: Settings) -> bool:
    """Whether clients must show a token."""
    if settings.auth == "auto":
        return settings.issuers_file is not None or not _is_local(settings)
    return settings.auth == "required"


def is_for_one_user(settings: Settings) -> bool:
    """Whether the server is for one user of this machine: on the loopback, without tokens."""
    return _is_local(settings) and not is_auth_required(settings)


def _is_local(settings: Settings) -> bool:
    """Whether clients on this machine only can reach the server."""
    http = settings.http_address
    return is_loopback(settings.address, "--address") and (not http or is_loopback(http, "--http-address"))


def tls_files(settings: Settings) -> tuple[TlsFiles, TlsFiles] | None:
    """The files of the clients' port and of the workers' port; None without TLS. Raises PortError."""
    if settings.tls_cert is None or settings.tls_key is None:
        if settings.tls_cert or settings.tls_key or settings.tls_client_ca or settings.worker_client_ca:
            raise PortError("TLS needs both --tls-cert and --tls-key")
        return None
    if settings.worker_client_ca and not (settings.worker_cert and settings.worker_key):
        raise PortError("--worker-client-ca needs --worker-cert and --worker-key, which workers then show")
    certificate, key = settings.tls_cert, settings.tls_key
    return TlsFiles(certificate, key, settings.tls_client_ca), TlsFiles(certificate, key, settings.worker_client_ca)


def worker_environment(settings: Settings, address: str) -> dict[str, str]:
    """The address that workers report to, and the files that they need for it, at the same paths on all machines."""
    environment = {"MVPRUNE_WORKER_TARGET": settings.worker_target or address}
    if settings.tls_cert:
        environment["MVPRUNE_WORKER_CA"] = str(settings.worker_ca or settings.tls_cert)
    if settings.worker_cert and settings.worker_key:
        environment["MVPRUNE_WORKER_CERT"] = str(settings.worker_cert)
        environment["MVPRUNE_WORKER_KEY"] = str(settings.worker_key)
    return environment


def check_reach(address: str, option: str, *, allow_remote: bool, remedy: str = "") -> None:
    """Refuses an address that other machines can reach, unless that is allowed.

    Args:
        option: name of the option that sets the address, for the error.
        remedy: options that help besides --allow-remote, with a comma.

    Raises:
        PortError: it is such an address, or not HOST:PORT.
    """
    if not (is_loopback(address, option) or allow_remote):
        raise PortError(
            f"{option} must be an address of this machine only, such as 127.0.0.1:7070, got {address}, which others "
            f"can reach without TLS; give {remedy}--allow-remote if you mean it"
        )


def max_connections(settings: Settings) -> int:
    """How many connections each port accepts."""
    return settings.max_connections or descriptors.connections()


def max_connections_per_address(settings: Settings) -> int:
    """How many connections each port accepts from one address."""
    return settings.max_connections_per_address or max(1, max_connections(settings) // _ADDRESSES)


def strangers_connections(settings: Settings) -> int:
    """How many connections each port accepts from all addresses from which no valid credential came lately."""
    most = max_connections(settings)
    return most - most // _ADDRESSES if is_auth_required(settings) else most


def port_of(address: str) -> int:
    """The port of HOST:PORT."""
    return int(address.rpartition(":")[2])


def listen(
    address: str, option: str, tls: TlsFiles | None, *, allow_remote: bool, max_connections: int
) -> tuple[grpc.aio.Server, str]:
    """Binds a port. Returns its server, without handlers and not started, and its address with the port's number.

    Args:
        option: name of the option that sets the address, for errors.
        max_connections: connections that may be open; more are closed at once. Without a limit they could take all
            file descriptors of the process.

    Raises:
        PortError: the port is in use, or others could reach it without TLS.
        BadCertificate: see `TlsFiles`.
    """
    is_allowed = allow_remote or tls is not None
    check_reach(address, option, allow_remote=is_allowed, remedy="--tls-cert and --tls-key, or ")
    options = (*_OPTIONS, ("grpc.max_allowed_incoming_connections", max_connections))
    server = grpc.aio.server(options=options)
    try:
        port = server.add_secure_port(address, tls.credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise PortError(
            f"{option} must be an address of this machine with a free port, got {address}; is another server running "
            f"there? Give another: {option} HOST:PORT"
        )
    return server, f"{address.rpartition(':')[0]}:{port}"


async def stop(servers: Iterable[grpc.aio.Server], grace: float, force_stop: asyncio.Event) -> None:
    """Stops servers. Calls in progress may end within `grace` seconds, unless `force_stop` is set before."""
    servers = tuple(servers)
    ending = [asyncio.create_task(server.stop(grace)) for server in servers]
    forced = asyncio.create_task(force_stop.wait())
    for task in ending:
        await asyncio.wait((task, forced), return_when=asyncio.FIRST_COMPLETED)
    forced.cancel()
    await asyncio.gather(*ending, *(server.stop(None) for server in servers))


async def release(server: grpc.aio.Server) -> None:
    """Releases the port of a server, also of one that was not started: gRPC itself then keeps the port."""
    with suppress(grpc.aio.UsageError):  # it was started
        await server.start()
    await server.stop(None)
