"""The channel: addresses, deadlines, retries, errors. The one module that calls gRPC.

A call is repeated when nothing answers (UNAVAILABLE) and repeating it does no harm, and when the server says that it
was too early (RESOURCE_EXHAUSTED with RetryInfo). A stream that breaks is opened again by its caller's cursor, so
nothing is lost or seen twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import grpc.experimental

from mvprune._endpoint import Endpoint, is_loopback, read
from mvprune._exceptions import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    LimitExceeded,
    MvpruneError,
    NotAuthorised,
    NotFound,
    RequestRefused,
    ServerError,
    ServerUnreachable,
)
from mvprune.v1 import admin_pb2_grpc, artifact_pb2_grpc, job_pb2_grpc

CONNECT_SECONDS = 2.0  # how long a server that never answered is tried
RECONNECT_SECONDS = 60.0  # how long one that did answer is: time enough for its restart
_FIRST_DELAY, _LAST_DELAY = 0.1, 5.0
_EARLY_TRIES, _LONGEST_EARLY = 10, 60.0  # calls that came too early: how often they are repeated, and after how long
_STATUS = grpc.StatusCode
_CUT = (_STATUS.UNAVAILABLE, _STATUS.DEADLINE_EXCEEDED, _STATUS.CANCELLED)  # how a stream looks when its server goes
_REFUSALS: dict[Any, type[RequestRefused]] = {
    _STATUS.INVALID_ARGUMENT: InvalidArgument,
    _STATUS.OUT_OF_RANGE: InvalidArgument,
    _STATUS.NOT_FOUND: NotFound,
    _STATUS.UNAUTHENTICATED: NotAuthorised,
    _STATUS.PERMISSION_DENIED: NotAuthorised,
    _STATUS.ALREADY_EXISTS: AlreadyExists,
    _STATUS.FAILED_PRECONDITION: FailedPrecondition,
    _STATUS.ABORTED: Conflict,
    _STATUS.RESOURCE_EXHAUSTED: LimitExceeded,
}


class DeadlinePassed(Exception):
    """The caller's own deadline for a stream is over."""


class Patience:
    """How long to go on trying: exponential delays with jitter, within a limit that an answer renews."""

    def __init__(self) -> None:
        self._delay = _FIRST_DELAY
        self._started = time.monotonic()
        self._until: float | None = self._started + CONNECT_SECONDS

    def renew(self) -> None:
        """Something answered: the next failure starts over, with the longer limit."""
        self._delay = _FIRST_DELAY
        self._until = None

    def extend(self) -> None:
        """The server answered, though only that it cannot serve now: the longer limit, from the beginning on."""
        if self._until is not None:
            self._until = max(self._until, self._started + RECONNECT_SECONDS)

    def sleep_or_raise(self, error: MvpruneError) -> None:
        """Sleeps before the next try. Raises `error` once the limit is reached."""
        if self._until is None:
            self._until = time.monotonic() + RECONNECT_SECONDS
        delay = self._delay * random.uniform(0.5, 1.0)  # noqa: S311
        if time.monotonic() + delay > self._until:
            raise error
        time.sleep(delay)
        self._delay = min(2 * self._delay, _LAST_DELAY)


class _Early:
    """Calls that the server refused because they came too early, with the time when they will not."""

    def __init__(self) -> None:
        self._tries = 0

    def sleep(self, told: _Told) -> bool:
        """Sleeps as long as the server says, and a little more, lest all come back at once. False: enough of it."""
        if told.retry_seconds is None or told.retry_seconds > _LONGEST_EARLY or self._tries == _EARLY_TRIES:
            return False
        self._tries += 1
        time.sleep(told.retry_seconds * random.uniform(1.0, 1.2))  # noqa: S311
        return True


class Transport:
    """A channel to one server.

    Args:
        endpoint: the server, and what is shown to it.
        timeout: seconds that one call may take.
    """

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self.address = endpoint.address
        self._timeout = timeout
        self._channel = _channel(endpoint)
        metadata = (("authorization", f"Bearer {endpoint.token}"),) if endpoint.token else ()
        self.jobs = _showing(metadata, job_pb2_grpc.JobServiceStub(self._channel))
        self.artifacts = _showing(metadata, artifact_pb2_grpc.ArtifactServiceStub(self._channel))
        self.admin = _showing(metadata, admin_pb2_grpc.AdminServiceStub(self._channel))

    def close(self) -> None:
        """Closes the channel; streams that are open end."""
        self._channel.close()

    def call(self, method: Any, request: Any, *, repeatable: bool = True) -> Any:
        """One answer.

        Args:
            repeatable: whether doing it twice is as good as once.

        Raises:
            ServerUnreachable: nothing answers, or not within the timeout.
            RequestRefused: the server answered with an error.
        """
        patience, early = Patience(), _Early()
        while True:
            try:
                return method(request, timeout=self._timeout)
            except grpc.RpcError as error:
                told = _told(error)
                failure = self._failure(error, told)
                if error.code() is _STATUS.RESOURCE_EXHAUSTED and early.sleep(told):
                    continue
                if not repeatable or error.code() is not _STATUS.UNAVAILABLE:
                    raise failure from None
                patience.sleep_or_raise(failure)

    def stream(
        self,
        start: Callable[[float | None], Any],
        is_last: Callable[[Any], bool],
        *,
        deadline: float | None = None,
        stall_seconds: float | None = None,
    ) -> Iterator[Any]:
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
        patience, early = Patience(), _Early()
        while True:
            limits = [limit for limit in (stall_seconds, deadline and deadline - time.monotonic()) if limit is not None]
            opened = time.monotonic()
            call = start(min(limits) if limits else None)
            try:
                for message in call:
                    patience.renew()
                    yield message
                    if is_last(message):
                        return
                failure: MvpruneError = ServerUnreachable(f"the server at {self.address} cut the connection")
            except grpc.RpcError as error:
                told = _told(error)
                failure = self._failure(error, told)
                if error.code() is _STATUS.RESOURCE_EXHAUSTED and early.sleep(told):
                    continue
                if error.code() not in _CUT:
                    raise failure from None
                if told.reason:
                    patience.extend()
            finally:
                call.cancel()
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlinePassed
            if time.monotonic() - opened > 2 * CONNECT_SECONDS:
                patience.renew()  # it was connected, only silent
            patience.sleep_or_raise(failure)

    def _failure(self, error: grpc.RpcError, told: _Told) -> MvpruneError:
        code, details = error.code(), error.details() or "no details given"
        if code is _STATUS.UNAVAILABLE:
            if told.reason:  # the server itself said it: something behind it is away
                return ServerUnreachable(f"the server at {self.address} is not available now: {details}")
            return ServerUnreachable(f"no server answers at {self.address} ({details.rpartition(': ')[2]})")
        if code is _STATUS.DEADLINE_EXCEEDED:
            return ServerUnreachable(f"the server at {self.address} did not answer within {self._timeout:g} s")
        kind = _REFUSALS.get(code, ServerError)
        if issubclass(kind, InvalidArgument):
            return kind(details, code=code.name, reason=told.reason, violations=told.violations)
        return kind(details, code=code.name, reason=told.reason)


def _channel(endpoint: Endpoint) -> grpc.Channel:
    options = [
        ("grpc.enable_retries", 0),
        # Streams without a thread of gRPC's: with one, Ctrl-C in a bad moment leaves close() waiting for ever.
        (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
        # The connect timeout: without it a host that drops packets is waited for 20 s.
        ("grpc.min_reconnect_backoff_ms", int(1000 * CONNECT_SECONDS)),
        ("grpc.initial_reconnect_backoff_ms", int(1000 * _FIRST_DELAY)),
        ("grpc.max_reconnect_backoff_ms", int(500 * CONNECT_SECONDS)),  # below the patience of a call
        # Finds a dead connection under a silent stream. More often than every 300 s, servers take for abuse.
        ("grpc.keepalive_time_ms", 330_000),
        ("grpc.enable_http_proxy", int(not is_loopback(endpoint.address.rpartition(":")[0]))),
    ]
    if not endpoint.tls:
        return grpc.insecure_channel(endpoint.address, options)
    files = ((endpoint.ca_cert, "ca_cert"), (endpoint.client_key, "client_key"), (endpoint.client_cert, "client_cert"))
    credentials = grpc.ssl_channel_credentials(*(path and read(path, name) for path, name in files))
    return grpc.secure_channel(endpoint.address, credentials, options)


def _showing(metadata: tuple[tuple[str, str], ...], stub: Any) -> Any:
    """The stub, with `metadata` in all its calls."""

    def with_metadata(method: Any) -> Any:
        # A closure, because it has no repr() that tells the token.
        return lambda request, timeout=None: method(request, timeout=timeout, metadata=metadata)

    for name, method in vars(stub).items():
        setattr(stub, name, with_metadata(method))
    return stub


class _Told(NamedTuple):
    """What came with an error: ErrorInfo, BadRequest and RetryInfo of its google.rpc.Status."""

    reason: str = ""
    violations: tuple[FieldViolation, ...] = ()
    retry_seconds: float | None = None


def _told(error: grpc.RpcError) -> _Told:
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if packed is None:
        return _Told()
    from google.rpc import error_details_pb2, status_pb2

    told = _Told()
    for detail in status_pb2.Status.FromString(packed).details:
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            told = told._replace(reason=info.reason)
        elif detail.Unpack(bad):
            violations = tuple(FieldViolation(one.field, one.description) for one in bad.field_violations)
            told = told._replace(violations=violations)
        elif detail.Unpack(retry):
            told = told._replace(retry_seconds=retry.retry_delay.ToNanoseconds() / 1e9)
    return told
