"""Two ways to a server: one that blocks its thread, and one that lets others run meanwhile.

What clients do is written once, as coroutines over a wire. Over a blocking one they never wait for anything, so
`run` and `iterate` take them through without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
import grpc.experimental

from mvprune.client.endpoint import Endpoint, read
from mvprune.common.channels import open_channel
from mvprune.common.exceptions import bad_field

CONNECT_SECONDS = 2.0  # how long a server that never answered is tried
ATTEMPT_SECONDS = 10.0  # that one try may take: a busy server accepts at once, and says its first word late
FIRST_DELAY = 0.1
_T = TypeVar("_T")


class Wire(Protocol):
    """A channel to one server, and the waiting that goes with it."""

    closed: bool

    @property
    def channel(self) -> Any:
        """The channel from which stubs are made."""

    async def call(self, method: Any, request: Any, seconds: float) -> Any:
        """One answer, within that time."""

    async def read(self, stream: Any) -> Any:
        """The next message of a stream; None at its end."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""

    async def work(self, function: Callable[[threading.Event], _T]) -> _T:
        """Does what blocks; `function` has to end soon after its argument is set."""

    def callback(self, function: Callable[..., object]) -> Callable[..., object]:
        """The function that `work` has to call in place of `function`."""

    async def close(self) -> None:
        """Closes the channel; streams that are open end."""


class BlockingWire:
    """For threads.

    Raises:
        InvalidArgument: a file of the endpoint cannot be read.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.closed = False
        self.channel = _channel(grpc, endpoint, _credentials(endpoint))

    async def call(self, method: Any, request: Any, seconds: float) -> Any:
        return method(request, timeout=seconds)

    async def read(self, stream: Any) -> Any:
        return next(stream, None)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251

    async def work(self, function: Callable[[threading.Event], _T]) -> _T:
        return function(threading.Event())

    def callback(self, function: Callable[..., object]) -> Callable[..., object]:
        return function

    async def close(self) -> None:
        self.closed = True
        self.channel.close()


class AsyncWire:
    """For an event loop: that in which it is used first.

    Raises:
        InvalidArgument: a file of the endpoint cannot be read.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.closed = False
        self._endpoint = endpoint
        self._credentials = _credentials(endpoint)

    @functools.cached_property
    def channel(self) -> Any:
        return _channel(grpc.aio, self._endpoint, self._credentials)

    async def call(self, method: Any, request: Any, seconds: float) -> Any:
        with self._telling_that_it_is_closed():
            return await method(request, timeout=seconds)

    async def read(self, stream: Any) -> Any:
        with self._telling_that_it_is_closed():
            message = await stream.read()
        return None if message is grpc.aio.EOF else message

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def work(self, function: Callable[[threading.Event], _T]) -> _T:
        stop = threading.Event()
        working = asyncio.get_running_loop().run_in_executor(None, function, stop)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([working])  # a thread that went on would write behind the caller's back
            working.exception()
            raise

    def callback(self, function: Callable[..., object]) -> Callable[..., object]:
        return functools.partial(asyncio.get_running_loop().call_soon_threadsafe, function)

    async def close(self) -> None:
        self.closed = True
        if "channel" in self.__dict__:
            await self.channel.close()

    @contextlib.contextmanager
    def _telling_that_it_is_closed(self) -> Iterator[None]:
        """A call that ends with the channel looks as if its task had been cancelled."""
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.closed and not (task and task.cancelling()):
                raise ClientClosed from None
            raise


class ClientClosed(RuntimeError):
    """A closed client was used."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


def run(awaitable: Awaitable[_T]) -> _T:
    """The result of what is written for any wire, over a blocking one."""
    try:
        next(awaitable.__await__())
    except StopIteration as done:
        result: _T = done.value
        return result
    raise RuntimeError("waited over a blocking wire")


def iterate(source: AsyncGenerator[_T, None]) -> Iterator[_T]:
    """The items of what is written for any wire, over a blocking one."""
    try:
        while True:
            try:
                item = run(anext(source))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(source.aclose())


def _credentials(endpoint: Endpoint) -> grpc.ChannelCredentials | None:
    if not endpoint.tls:
        return None
    files = ((endpoint.ca_cert, "ca_cert"), (endpoint.client_key, "client_key"), (endpoint.client_cert, "client_cert"))
    return grpc.ssl_channel_credentials(*(path and _pem(path, name) for path, name in files))


def _pem(path: Path, field: str) -> bytes:
    content = read(path, field)
    wanted = "PRIVATE KEY" if field == "client_key" else "CERTIFICATE"
    if f"{wanted}-----\n".encode() not in content.replace(b"\r", b""):
        raise bad_field(field, f"{path} holds no {wanted.lower()} in PEM")
    return content


def _channel(module: Any, endpoint: Endpoint, credentials: grpc.ChannelCredentials | None) -> Any:
    """A channel of grpc or grpc.aio."""
    # Streams without a thread of gRPC's: with one, Ctrl-C in a bad moment leaves close() waiting for ever.
    unthreaded = ((grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),)
    return open_channel(
        module,
        endpoint.address,
        credentials,
        connect_seconds=ATTEMPT_SECONDS,  # without it a host that drops packets is waited for 20 s
        longest_wait_seconds=CONNECT_SECONDS / 2,  # below the patience of a call
        options=unthreaded if module is grpc else (),
    )
