"""gRPC channels: clients and workers open theirs here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import grpc

from mvprune.common.addresses import is_this_machine

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # as gRPC reads them, the first that is set
_EXCLUDED = ("no_grpc_proxy", "no_proxy")


def open_channel(
    module: Any,
    target: str,
    credentials: grpc.ChannelCredentials | None,
    *,
    connect_seconds: float,
    longest_wait_seconds: float,
    options: Iterable[tuple[str, Any]] = (),
) -> Any:
    """A channel that asks no proxy for this machine.

    Args:
        module: grpc or grpc.aio.
        target: HOST:PORT, or a target of gRPC such as dns:///HOST:PORT.
        credentials: None: without TLS.
        connect_seconds: that one try to connect may take.
        longest_wait_seconds: between two tries. gRPC's default, two minutes, outlives a restart of the server by far.
        options: more options of gRPC.
    """
    every = [
        ("grpc.enable_http_proxy", int(not _stays_here(target))),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", int(1000 * connect_seconds)),
        ("grpc.max_reconnect_backoff_ms", int(1000 * longest_wait_seconds)),
        # Finds a dead connection under a silent stream. More often than every 300 s, servers take for abuse.
        ("grpc.keepalive_time_ms", 330_000),
        *options,
    ]
    if credentials is None:
        return module.insecure_channel(target, every)
    return module.secure_channel(target, credentials, every)


def proxy_variable(target: str) -> str:
    """The environment variable that names the proxy between this process and `target`, "" if there is none."""
    if _stays_here(target):
        return ""
    named = next((name for name in _PROXIES if os.environ.get(name)), "")
    excluded = next((found for name in _EXCLUDED if (found := os.environ.get(name))), "")
    endings = tuple(f".{name.strip().lstrip('.')}" for name in excluded.split(",") if name.strip())
    return "" if all(f".{host}".endswith(endings) for host in _hosts(target)) else named


def _stays_here(target: str) -> bool:
    return all(map(is_this_machine, _hosts(target)))


def _hosts(target: str) -> list[str]:
    """The hosts of a target; ipv4:ADDRESS:PORT,ADDRESS:PORT has several."""
    addresses = target.rpartition("/")[2].removeprefix("ipv4:").removeprefix("ipv6:")
    return [address.rpartition(":")[0] for address in addresses.split(",")]
