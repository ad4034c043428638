"""Deadlines, retries, errors: calls and streams over a wire.

A call is repeated when nothing answers (UNAVAILABLE) and repeating it does no harm, and when the server says that it
was too early (RESOURCE_EXHAUSTED with RetryInfo). A stream that breaks is opened again by its caller's cursor, so
nothing is lost or seen twice.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import grpc

from mvprune.client.endpoint import Endpoint
from mvprune.client.status import refusal
from mvprune.client.tokens import TokenSource
from mvprune.client.wire import ATTEMPT_SECONDS, CONNECT_SECONDS, FIRST_DELAY, ClientClosed, Wire
from mvprune.common.exceptions import MvpruneError, NotAuthorised, ServerUnreachable, bad_field
from mvprune.common.units import LONGEST_SECONDS
from mvprune.v1 import artifact_pb2_grpc, job_pb2_grpc

RECONNECT_SECONDS = 60.0  # how long a server that did answer is tried: time enough for its restart
_LAST_DELAY = 5.0
_SAME_SECONDS = 10.0  # after a token was refused, another that is refused is not replaced
_EARLY_TRIES, _LONGEST_EARLY = 10, 60.0  # calls that came too early: how often they are repeated, and after how long


def check_timeout(given: float, *, more_than: float = -math.inf) -> None:
    """Raises InvalidArgument for what is no timeout."""
    if not isinstance(given, int | float) or not more_than < given <= LONGEST_SECONDS:
        least = "" if more_than == -math.inf else f"more than {more_than:g}, "
        raise bad_field("timeout", f"must be seconds, {least}up to {LONGEST_SECONDS:,}, got {given!r:.100}")


class DeadlinePassed(Exception):
    """The caller's own deadline for a stream is over."""


class Patience:
    """How long to go on trying: exponential delays with jitter, within a limit that an answer renews.

    Args:
        known: whether this server has answered before: then it may be restarting.
    """

    def __init__(self, *, known: bool) -> None:
        self._delay = FIRST_DELAY
        self._started = time.monotonic()
        self._until: float | None = self._started + (RECONNECT_SECONDS if known else CONNECT_SECONDS)

    def renew(self) -> None:
        """Something answered: the next failure starts over, with the longer limit."""
        self._delay = FIRST_DELAY
        self._until = None

    def extend(self) -> None:
        """The server answered, though only that it cannot serve now: the longer limit, from the beginning on."""
        if self._until is not None:
            self._until = max(self._until, self._started + RECONNECT_SECONDS)

    def delay_or_raise(self, error: MvpruneError) -> float:
        """Seconds to wait before the next try. Raises `error` once the limit is reached."""
        if self._until is None:
            self._until = time.monotonic() + RECONNECT_SECONDS
        delay = self._delay * random.uniform(0.5, 1.0)  # noqa: S311
        if time.monotonic() + delay > self._until:
            raise error
        self._delay = min(2 * self._delay, _LAST_DELAY)
        return delay


class _Early:
    """Calls that the server refused because they came too early, with the time when they will not."""

    def __init__(self) -> None:
        self._tries = 0

    def delay(self, retry_seconds: float | None) -> float | None:
        """As long as the server says, and a little more, lest all come back at once. None: enough of it."""
        if retry_seconds is None or retry_seconds > _LONGEST_EARLY or self._tries == _EARLY_TRIES:
            return None
        self._tries += 1
        return retry_seconds * random.uniform(1.0, 1.2)  # noqa: S311


class _Tokens:
    """The tries of a call or stream with tokens that change."""

    def __init__(self, source: TokenSource | None) -> None:
        self._source = source
        self._shown = ""
        self._since = -math.inf

    def begin(self) -> None:
        """The next try has the newest token."""
        self._shown = self._source.token if self._source else ""

    def may_repeat(self, error: MvpruneError) -> bool:
        """Whether the token was refused, and there may be another. Not again at once: the other was refused too."""
        if self._source is None or not isinstance(error, NotAuthorised) or error.code != "UNAUTHENTICATED":
            return False
        is_other = self._source.token != self._shown or self._source.is_due()
        if not is_other or time.monotonic() - self._since < _SAME_SECONDS:
            return False
        self._since = time.monotonic()
        return True


class Transport:
    """Calls to one server.

    Args:
        wire: the way to it.
        endpoint: the server, and what is shown to it.
        timeout: seconds that one call may take.

    Raises:
        InvalidArgument: the timeout is no time.
    """

    def __init__(self, wire: Wire, endpoint: Endpoint, timeout: float) -> None:
        check_timeout(timeout, more_than=0)
        self.wire = wire
        self.endpoint = endpoint
        self.timeout = timeout
        self._answered = False

    @functools.cached_property
    def jobs(self) -> Any:
        """Stub of the JobService."""
        return self._showing_token(job_pb2_grpc.JobServiceStub(self.wire.channel))

    @functools.cached_property
    def artifacts(self) -> Any:
        """Stub of the ArtifactService."""
        return self._showing_token(artifact_pb2_grpc.ArtifactServiceStub(self.wire.channel))

    @functools.cached_property
    def sweeps(self) -> Any:
        """Stub of the SweepService."""
        from mvprune.v1 import sweep_pb2_grpc  # few need it

        return self._showing_token(sweep_pb2_grpc.SweepServiceStub(self.wire.channel))

    @functools.cached_property
    def uploads(self) -> Any:
        """Stub of the UploadService."""
        from mvprune.v1 import upload_pb2_grpc  # few need it

        return self._showing_token(upload_pb2_grpc.UploadServiceStub(self.wire.channel))

    @functools.cached_property
    def catalog(self) -> Any:
        """Stub of the CatalogService."""
        from mvprune.v1 import catalog_pb2_grpc  # few need it

        return self._showing_token(catalog_pb2_grpc.CatalogServiceStub(self.wire.channel))

    @functools.cached_property
    def admin(self) -> Any:
        """Stub of the AdminService."""
        from mvprune.v1 import admin_pb2_grpc  # few need it

        return self._showing_token(admin_pb2_grpc.AdminServiceStub(self.wire.channel))

    @functools.cached_property
    def issuers(self) -> Any:
        """Stub of the IssuerService."""
        from mvprune.v1 import issuer_pb2_grpc  # few need it

        return self._showing_token(issuer_pb2_grpc.IssuerServiceStub(self.wire.channel))

    @functools.cached_property
    def webhooks(self) -> Any:
        """Stub of the WebhookService."""
        from mvprune.v1 import webhook_pb2_grpc  # few need it

        return self._showing_token(webhook_pb2_grpc.WebhookServiceStub(self.wire.channel))

    async def call(self, method: Any, request: Any, *, repeatable: bool = True) -> Any:
        """One answer.

        Args:
            repeatable: whether doing it twice is as good as once.

        Raises:
            ServerUnreachable: nothing answers, or not within the timeout.
            RequestRefused: the server answered with an error.
        """
        patience, early, tries = Patience(known=self._answered), _Early(), _Tokens(self.endpoint.source)
        while True:
            self._check_open()
            await self._renew_token()
            tries.begin()
            try:
                answer = await self.wire.call(method, request, self.timeout)
                self._answered = True
                return answer
            except grpc.RpcError as error:
                failed = refusal(error, self.endpoint.address, self.timeout)
            if tries.may_repeat(failed.error):
                continue
            delay = early.delay(failed.retry_seconds)
            if delay is None:
                if not (repeatable and failed.unavailable):
                    raise failed.error
                delay = patience.delay_or_raise(failed.error)
            await self.wire.sleep(delay)

    async def stream(
        self,
        start: Callable[[float | None], Any],
        is_last: Callable[[Any], bool],
        *,
        deadline: float | None = None,
        stall_seconds: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """The messages of a stream up to and with the last, over as many connections as it takes.

        Args:
            start: opens the stream at the caller's cursor, with a timeout in seconds.
            is_last: whether nothing comes after a message. A stream that ends without it was cut.
            deadline: time.monotonic() to give up at.
            stall_seconds: how long one connection may last.

        Raises:
            DeadlinePassed: at the deadline.
            ServerUnreachable: nothing answered for too long.
            RequestRefused: the server answered with an error.
        """
        patience, early, tries = Patience(known=self._answered), _Early(), _Tokens(self.endpoint.source)
        while True:
            self._check_open()
            limits = [limit for limit in (stall_seconds, deadline and deadline - time.monotonic()) if limit is not None]
            opened = time.monotonic()
            await self._renew_token()
            tries.begin()
            call = start(min(limits) if limits else None)
            try:
                while (message := await self.wire.read(call)) is not None:
                    patience.renew()
                    self._answered = True
                    yield message
                    if is_last(message):
                        return
                failure: MvpruneError = ServerUnreachable(f"the server at {self.endpoint.address} cut the connection")
            except grpc.RpcError as error:
                failed = refusal(error, self.endpoint.address, self.timeout)
                failure, delay = failed.error, early.delay(failed.retry_seconds)
                if delay is not None:
                    await self.wire.sleep(delay)
                    continue
                if tries.may_repeat(failure):
                    continue
                if not failed.cut:
                    raise failure from None
                if failed.from_server:
                    patience.extend()
            finally:
                call.cancel()
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlinePassed
            if time.monotonic() - opened > 2 * ATTEMPT_SECONDS:
                patience.renew()  # it was connected, only silent
            await self.wire.sleep(patience.delay_or_raise(failure))

    def _check_open(self) -> None:
        if self.wire.closed:
            raise ClientClosed

    async def _renew_token(self) -> None:
        source = self.endpoint.source
        if source is not None and source.is_due():
            await self.wire.work(lambda _: source.renew())

    def _showing_token(self, stub: Any) -> Any:
        """The stub, with the token in all its calls."""

        def with_metadata(method: Any) -> Any:
            # A closure, because it has no repr() that tells the token.
            return lambda request, timeout=None: method(request, timeout=timeout, metadata=self._metadata())

        for name, method in vars(stub).items():
            setattr(stub, name, with_metadata(method))
        return stub

    def _metadata(self) -> Sequence[tuple[str, str]]:
        source = self.endpoint.source
        token = self.endpoint.token if source is None else source.token
        return (("authorization", f"Bearer {token}"),) if token else ()
