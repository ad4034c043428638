"""Connections that want nothing keep nobody out."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import REGISTRY

from mvprune.v1 import admin_pb2, admin_pb2_grpc
from mvprune_service.api.access import calls as calls_module
from mvprune_service.api.access import connections, ports
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.connections import ConnectionLimit, Limits, _share
from mvprune_service.api.access.handlers import Handlers
from mvprune_service.api.access.peers import KnownAddresses, network_of
from mvprune_service.clock import SECOND
from mvprune_service.observability.descriptors import raise_limit
from mvprune_service.observability.probes import Problems

from ..neighbours import free_ports
from ..waiting import PATIENCE, until, until_true
from .crowd import PREFACE, SETTINGS, call_without_request, connect
from .servers import Server

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 1_024
COUNT = 1_300  # on each port


@contextmanager
def crowd(mode: str, *addresses: str) -> Iterator[None]:
    """Connections from another process, while this lasts."""
    command = [sys.executable, "-m", "tests.integration.crowd", mode, str(COUNT), *addresses]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == f"{COUNT * len(addresses)}\n".encode()
            yield
        finally:
            process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that may open few files."""
    raise_limit()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 4 * COUNT:
        pytest.skip("this process may not open enough files")
    server = Server(tmp_path / "home")
    server.command = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", *server.command)
    yield server
    server.close()


def check(channel: grpc.Channel, seconds: float = PATIENCE) -> None:
    health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=seconds)


def answers(address: str) -> bool:
    options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
    with grpc.insecure_channel(address, options) as channel, suppress(grpc.RpcError):
        check(channel, 5)
        return True
    return False


def scraped(address: str) -> str:
    with suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return str(answer.read().decode())
    return ""


def has_sent(connection: socket.socket, data: bytes) -> bool:
    """Whether it could be: it may not be connected yet, or may have been closed."""
    try:
        return connection.send(data) == len(data)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def all_connected(*connections: socket.socket, start: bytes = PREFACE + SETTINGS) -> None:
    """Each has sent its first bytes."""
    for connection in connections:
        await until_true(lambda connection=connection: has_sent(connection, start), "it was connected")


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has closed it."""
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["silent", "trickle"])
def test_connections_that_say_nothing_stop_no_port(server: Server, mode: str) -> None:
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    server.start(metrics_address=metrics)
    addresses = (server.address, server.worker_address)
    with grpc.insecure_channel(server.address) as clients, grpc.insecure_channel(server.worker_address) as workers:
        check(clients)
        check(workers)
        with crowd(mode, *addresses, metrics):
            started = time.monotonic()
            for channel in (clients, workers):  # who was there first is served as before
                check(channel)
            for address in addresses:
                until(lambda address=address: answers(address), f"{address} answered")
            text = until(lambda: scraped(metrics), "the metrics were read")
            assert time.monotonic() - started < 100, "gRPC itself gives each of them two minutes"
    assert "mvprune_descriptor_usage_ratio" in text
    assert "internal error" not in server.log()


@pytest.mark.slow
def test_a_server_says_when_it_runs_out_of_descriptors(server: Server) -> None:
    server.start(max_connections=2 * DESCRIPTORS, max_connections_per_address=2 * DESCRIPTORS)
    with crowd("idle", server.address):
        until(lambda: "of 1,024 file descriptors are in use: raise the limit" in server.log(), server.log)
    until(lambda: answers(server.address), "it answered again")


@asynccontextmanager
async def listening(max_connections: int, calls: Calls | None = None) -> AsyncIterator[str]:
    """The address of a gRPC server in this process, while this lasts."""
    server, address = ports.listen(
        "127.0.0.1:0", "--address", None, allow_remote=False, max_connections=max_connections
    )
    if calls is not None:
        server.add_generic_rpc_handlers((Handlers(calls),))
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


def limit_of(
    address: str, of_address: int, *, of_strangers: int = 64, known: KnownAddresses | None = None
) -> ConnectionLimit:
    """The limits of a port that takes 64 connections."""
    return ConnectionLimit({ports.port_of(address): "clients"}, Limits(of_address, of_strangers, 64), known)


async def step_until(limit: ConnectionLimit, count: int) -> None:
    """Looks at the connections until the server has so many: it accepts and closes them when it gets to it."""
    async with asyncio.timeout(PATIENCE):
        while sum(known is not None for known in limit._known.values()) != count:
            await limit.step()


async def test_an_address_has_only_so_many_connections(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest of them stay, and other addresses keep theirs."""
    async with listening(max_connections=64) as address:
        limit = limit_of(address, 4)
        first = [connect(address, "127.0.0.2") for _ in range(3)]
        others = [connect(address, "127.0.0.3") for _ in range(4)]
        await all_connected(*first, *others)
        await step_until(limit, 7)
        assert caplog.text == ""
        flood = [connect(address, "127.0.0.2") for _ in range(10)]
        await all_connected(*flood)
        async with asyncio.timeout(PATIENCE):
            while sum(map(is_ended, flood)) < 9:
                await limit.step()
        assert not any(map(is_ended, (*first, *others)))
        assert sum(map(is_ended, flood)) == 9, "one place was left"
        (warning,) = caplog.messages
        assert warning.startswith("127.0.0.2 has more than 4 connections to a port: the newest are closed")
        first.pop().close()
        await step_until(limit, 7)
        again = connect(address, "127.0.0.2")
        await all_connected(again)
        await step_until(limit, 8)
        assert not is_ended(again), "a place was free again"
        for connection in (*first, *others, *flood, again):
            connection.close()


async def test_an_address_that_stays_at_its_limit_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(max_connections=64) as address:
        limit = limit_of(address, 2)
        kept = [connect(address) for _ in range(2)]
        await all_connected(*kept)
        await step_until(limit, 2)
        assert caplog.messages == [], "it may have as many"

        async def exceed() -> None:
            more = connect(address)
            await all_connected(more)
            async with asyncio.timeout(PATIENCE):
                while not is_ended(more):
                    await limit.step()
            more.close()
            await step_until(limit, 2)

        for _ in range(3):
            await exceed()
        assert len(caplog.messages) == 1
        kept.pop().close()
        await step_until(limit, 1)
        kept.append(connect(address))
        await all_connected(kept[-1])
        await step_until(limit, 2)
        await exceed()
        assert len(caplog.messages) == 2, "in between it had fewer"
        for connection in kept:
            connection.close()


@pytest.mark.slow
def test_one_address_does_not_fill_a_port(server: Server) -> None:
    """However often it connects again: callers from other addresses are answered."""
    server.start(max_connections=40)
    flood: list[socket.socket] = []
    with grpc.insecure_channel(server.address) as clients:
        for _ in range(50):
            flood = [connection for connection in flood if not is_ended(connection)]
            flood += [connect(server.address, "127.0.0.2") for _ in range(40 - len(flood))]
            time.sleep(0.1)
            with suppress(grpc.RpcError):
                check(clients, 0.5)
        until(lambda: "127.0.0.2 has more than 10 connections to a port" in server.log(), server.log)
        until(lambda: answers(server.address), "another address was answered")
    for connection in flood:
        connection.close()


@pytest.mark.slow
def test_four_addresses_keep_no_known_caller_out(server: Server) -> None:
    """They reconnect as soon as they are cut, each within its own limit."""
    server.start(max_connections=200, auth="required")
    token = (server.home / "operator-token").read_text().strip()
    ended, flood = threading.Event(), list[socket.socket]()

    def storm() -> None:
        while not ended.is_set():
            flood[:] = [connection for connection in flood if not is_ended(connection)]
            flood.extend(connect(server.address, f"127.0.0.{2 + number % 4}") for number in range(220 - len(flood)))
            ended.wait(0.1)

    def status() -> admin_pb2.ServerStatus:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
        with grpc.insecure_channel(server.address, options) as channel:
            return admin_pb2_grpc.AdminServiceStub(channel).GetServerStatus(
                admin_pb2.GetServerStatusRequest(),
                metadata=[("authorization", f"Bearer {token}")],
                wait_for_ready=True,
                timeout=30,  # of a busy machine: a caller that is kept out never gets in
            )

    status()
    thread = threading.Thread(target=storm)
    thread.start()
    try:
        until(lambda: "port of clients: " in server.log(), server.log)
        for _ in range(5):
            status()
        until(lambda: "connections of clients" in status().problems, server.log)  # while the storm is at its height
    finally:
        ended.set()
        thread.join()
        for connection in flood:
            connection.close()


@pytest.mark.parametrize(
    ("counts", "places", "share"),
    [([], 5, 1), ([1], 5, 1), ([9], 5, 5), ([9, 9], 5, 2), ([1, 9, 9], 9, 4), ([1, 1, 1], 2, 1), ([2, 3], 5, 3)],
)
def test_places_are_shared_evenly(counts: list[int], places: int, share: int) -> None:
    assert _share(counts, places) == share


async def test_strangers_leave_room_for_callers_who_are_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Four addresses together fill a port, though none of them has more than it may have."""
    monkeypatch.setattr(connections, "_HURRY_SECONDS", 0.0)
    closed = []

    def note(found: tuple[int, int]) -> None:
        with suppress(OSError), connections._opened(found) as connection:
            closed.append(network_of(connection.getpeername()[0]))
        shut_down(found)

    shut_down = connections._shut_down
    monkeypatch.setattr(connections, "_shut_down", note)
    async with listening(max_connections=64) as address:
        known, problems = KnownAddresses(), Problems()
        known.note("ipv4:127.0.0.9:1")
        limit = ConnectionLimit({ports.port_of(address): "clients"}, Limits(16, 12, 64), known, problems)
        mine = [connect(address, "127.0.0.9") for _ in range(14)]
        first = [connect(address, f"127.0.0.{number}") for number in (2, 3, 4, 5) for _ in range(3)]
        await all_connected(*mine, *first)
        await step_until(limit, 26)
        assert problems.texts() == {}
        assert caplog.messages == []
        newcomer = connect(address, "127.0.0.6")
        flood = [connect(address, f"127.0.0.{number}") for number in (2, 3, 4, 5) for _ in range(5)]
        await all_connected(newcomer, *flood)
        async with asyncio.timeout(PATIENCE):
            while sum(map(is_ended, (*first, *flood))) < 24:
                await limit.step()
        assert set(closed) == {f"127.0.0.{number}" for number in (2, 3, 4, 5)}, "not who is known, or has just one"
        (warning,) = caplog.messages
        assert "port of clients" in warning
        assert "of 64 connections are in use" in warning
        assert "127.0.0.2" in warning
        assert metric("mvprune_connections_closed_total") >= 24
        for connection in (*first, *flood):
            connection.close()
        left = sum(not is_ended(connection) for connection in mine)  # gRPC ends those that say nothing for long
        await step_until(limit, left + (not is_ended(newcomer)))
        await limit.step()
        assert problems.texts() == {}
        assert metric("mvprune_connections_of_one_address") == left
        for connection in (*mine, newcomer):
            connection.close()


def metric(name: str) -> float:
    """Of the clients' port."""
    return REGISTRY.get_sample_value(name, {"port": "clients"}) or 0.0


async def test_a_crowded_port_is_a_problem_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HURRIES", 1)
    async with listening(max_connections=64) as address:
        problems = Problems()
        limit = ConnectionLimit({ports.port_of(address): "workers"}, Limits(4, 4, 4), problems=problems)
        crowd = [connect(address, f"127.0.0.{number}") for number in (2, 3, 4, 5)]
        await all_connected(*crowd)
        await step_until(limit, 4)
        await limit.step()
        (text,) = problems.texts().values()
        assert list(problems.texts()) == ["connections of workers"]
        assert "4 of 4 connections are in use: block addresses, or raise --max-connections" in text
        assert "most are those of 127.0.0.2 (1), 127.0.0.3 (1)" in text
        for connection in crowd:
            connection.close()


def test_an_address_is_known_for_a_while() -> None:
    now = 0
    known = KnownAddresses(lambda: now)
    known.note("ipv6:%5B2001:db8::1%5D:7")
    known.note("ipv4:10.0.0.1:7")
    assert known.has(network_of("2001:db8::ffff"))
    assert known.has("10.0.0.1")
    assert not known.has("10.0.0.2")
    now = 16 * 60 * SECOND
    assert not known.has("10.0.0.1")


@pytest.mark.parametrize("start", [b"", PREFACE[:5], PREFACE + SETTINGS, call_without_request()])
async def test_a_place_that_is_not_used_is_free_again(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake that does not go on, a connection without calls, a call without its request."""
    short = {"grpc.server_handshake_timeout_ms": 500, "grpc.max_connection_idle_ms": 500}
    monkeypatch.setattr(ports, "_OPTIONS", tuple((dict(ports._OPTIONS) | short).items()))
    monkeypatch.setattr(calls_module, "_REQUEST_SECONDS", 0.5)
    calls = Calls()
    servicer = health.aio.HealthServicer()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, calls)
    async with listening(8, calls) as address:
        crowd = [connect(address) for _ in range(20)]
        await all_connected(*crowd, start=start)
        await until_true(lambda: sum(map(is_ended, crowd)) >= 12, "what is too much was closed")
        await until_true(lambda: sum(map(is_ended, crowd)) == 20, "what was not used was closed")
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)).status
