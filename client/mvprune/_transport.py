"""The channel: addresses, deadlines, retries, errors. The one module that calls gRPC.

A call is repeated only when nothing answers (UNAVAILABLE) and repeating it does no harm. A stream that breaks is
opened again by its caller's cursor, so nothing is lost or seen twice.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.experimental

from mvprune._exceptions import (
    AlreadyExists,
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    MvpruneError,
    NotAuthorised,
    NotFound,
    RequestRefused,
    ServerError,
    ServerUnreachable,
)
from mvprune.v1 import artifact_pb2_grpc, job_pb2_grpc

CONNECT_SECONDS = 2.0  # how long a server that never answered is tried
RECONNECT_SECONDS = 60.0  # how long one that did answer is: time enough for its restart
_FIRST_DELAY, _LAST_DELAY = 0.1, 5.0
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
    _STATUS.ABORTED: FailedPrecondition,
}


class DeadlinePassed(Exception):
    """The caller's own deadline for a stream is over."""


class Patience:
    """How long to go on trying: exponential delays with jitter, within a limit that an answer renews."""

    def __init__(self) -> None:
        self._delay = _FIRST_DELAY
        self._until: float | None = time.monotonic() + CONNECT_SECONDS

    def renew(self) -> None:
        """Something answered: the next failure starts over, with the longer limit."""
        self._delay = _FIRST_DELAY
        self._until = None

    def sleep_or_raise(self, error: MvpruneError) -> None:
        """Sleeps before the next try. Raises `error` once the limit is reached."""
        if self._until is None:
            self._until = time.monotonic() + RECONNECT_SECONDS
        delay = self._delay * random.uniform(0.5, 1.0)  # noqa: S311
        if time.monotonic() + delay > self._until:
            raise error
        time.sleep(delay)
        self._delay = min(2 * self._delay, _LAST_DELAY)


class Transport:
    """A channel to one server.

    Args:
        address: host:port.
        timeout: seconds that one call may take.
    """

    def __init__(self, address: str, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.enable_retries", 0),
                # Streams without a thread of gRPC's: with one, Ctrl-C in a bad moment leaves close() waiting for ever.
                (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
                # The connect timeout: without it a host that drops packets is waited for 20 s.
                ("grpc.min_reconnect_backoff_ms", int(1000 * CONNECT_SECONDS)),
                ("grpc.initial_reconnect_backoff_ms", int(1000 * _FIRST_DELAY)),
                ("grpc.max_reconnect_backoff_ms", int(1000 * _LAST_DELAY)),
                # Finds a dead connection under a silent stream. More often than every 300 s, servers take for abuse.
                ("grpc.keepalive_time_ms", 330_000),
                ("grpc.enable_http_proxy", int(not is_loopback(address.rpartition(":")[0]))),
            ],
        )
        self.jobs = job_pb2_grpc.JobServiceStub(self._channel)
        self.artifacts = artifact_pb2_grpc.ArtifactServiceStub(self._channel)

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
        patience = Patience()
        while True:
            try:
                return method(request, timeout=self._timeout)
            except grpc.RpcError as error:
                failure = self._failure(error)
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
        patience = Patience()
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
                failure = self._failure(error)
                if error.code() not in _CUT:
                    raise failure from None
            finally:
                call.cancel()
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlinePassed
            if time.monotonic() - opened > 2 * CONNECT_SECONDS:
                patience.renew()  # it was connected, only silent
            patience.sleep_or_raise(failure)

    def _failure(self, error: grpc.RpcError) -> MvpruneError:
        code, details = error.code(), error.details() or "no details given"
        reason, violations = _status_details(error)
        if code is _STATUS.UNAVAILABLE:
            if reason:  # the server itself said it: something behind it is away
                return ServerUnreachable(f"the server at {self.address} is not available now: {details}")
            return ServerUnreachable(f"no server answers at {self.address} ({details.rpartition(': ')[2]})")
        if code is _STATUS.DEADLINE_EXCEEDED:
            return ServerUnreachable(f"the server at {self.address} did not answer within {self._timeout:g} s")
        kind = _REFUSALS.get(code, ServerError)
        if issubclass(kind, InvalidArgument):
            return kind(details, code=code.name, reason=reason, violations=violations)
        return kind(details, code=code.name, reason=reason)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, where no proxy can help."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _status_details(error: grpc.RpcError) -> tuple[str, list[FieldViolation]]:
    """ErrorInfo.reason and BadRequest.field_violations of the google.rpc.Status that came with an error."""
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if packed is None:
        return "", []
    from google.rpc import error_details_pb2, status_pb2

    reason, violations = "", []
    for detail in status_pb2.Status.FromString(packed).details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad):
            violations = [FieldViolation(one.field, one.description) for one in bad.field_violations]
    return reason, violations
