"""Ports: where they may listen, with which certificates."""

from __future__ import annotations

import grpc

from mvprune import addresses
from mvprune_service.api.handlers import Handlers
from mvprune_service.api.tls import TlsFiles
from mvprune_service.config import Settings

_MESSAGE_BYTES = 1 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
)


class PortError(Exception):
    """A port cannot be opened as the settings say; the text says why and what to do."""


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT can be reached from this machine alone. Raises PortError for anything else than HOST:PORT."""
    try:
        host, _ = addresses.split_address(address)
    except ValueError:
        allowed = f"HOST:PORT, e.g. 127.0.0.1:7070 or [::1]:7070, ports from 0 to {addresses.LAST_PORT}"
        raise PortError(f"got the address {address!r}; allowed: {allowed}") from None
    return addresses.is_loopback(host)


def is_auth_required(settings: Settings) -> bool:
    """Whether clients must show a token."""
    if settings.auth == "auto":
        return not is_loopback(settings.address)
    return settings.auth == "required"


def tls_files(settings: Settings) -> tuple[TlsFiles, TlsFiles] | None:
    """The files of the clients' port and of the workers', None: without TLS. Raises PortError."""
    if settings.tls_cert is None or settings.tls_key is None:
        if settings.tls_cert or settings.tls_key or settings.tls_client_ca or settings.worker_client_ca:
            raise PortError("TLS needs both --tls-cert and --tls-key")
        return None
    if settings.worker_client_ca and not (settings.worker_cert and settings.worker_key):
        raise PortError("--worker-client-ca needs --worker-cert and --worker-key, which workers then show")
    certificate, key = settings.tls_cert, settings.tls_key
    return TlsFiles(certificate, key, settings.tls_client_ca), TlsFiles(certificate, key, settings.worker_client_ca)


def worker_environment(settings: Settings, address: str) -> dict[str, str]:
    """Where workers report to, and the files that they need for it. The files lie at the same paths on all machines."""
    environment = {"MVPRUNE_WORKER_TARGET": settings.worker_target or address}
    if settings.tls_cert:
        environment["MVPRUNE_WORKER_CA"] = str(settings.worker_ca or settings.tls_cert)
    if settings.worker_cert and settings.worker_key:
        environment["MVPRUNE_WORKER_CERT"] = str(settings.worker_cert)
        environment["MVPRUNE_WORKER_KEY"] = str(settings.worker_key)
    return environment


def listen(
    address: str, tls: TlsFiles | None, handlers: Handlers, *, allow_remote: bool
) -> tuple[grpc.aio.Server, str]:
    """A server that is not started yet, and its address with the port that it got.

    Raises:
        PortError: the port is taken, or would be open to others without TLS.
        BadCertificate: see `TlsFiles`.
    """
    if not (is_loopback(address) or tls or allow_remote):
        raise PortError(
            f"{address} can be reached from elsewhere, without TLS: give --tls-cert and --tls-key, "
            "or --allow-remote if you mean it"
        )
    server = grpc.aio.server(handlers=(handlers,), options=_OPTIONS)
    try:
        port = server.add_secure_port(address, tls.credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        raise PortError(f"cannot listen on {address}: is another server running there? (--address HOST:PORT)")
    return server, f"{address.rpartition(':')[0]}:{port}"
