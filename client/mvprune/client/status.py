"""The status of a failed call, as an exception."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc

from mvprune.common.exceptions import (
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

_STATUS = grpc.StatusCode
# CANCELLED is how gRPC's server ends calls of which it has too many: thousands that it has not begun.
_AWAY = (_STATUS.UNAVAILABLE, _STATUS.CANCELLED)
_CUT = (*_AWAY, _STATUS.DEADLINE_EXCEEDED)  # how a stream looks when its server goes
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
# OpenSSL's and gRPC's words of a connection that is not made.
_CAUSES = {
    "WRONG_VERSION_NUMBER": "what is there speaks no TLS",
    "Hostname Verification Check failed": "its certificate is for another name",
    "Failed to create security handshaker": "the certificate or the key given for TLS cannot be used",
    ": Socket closed": "it closes the connection; it may want TLS, grpcs://, or a client's certificate",
}


class Refusal(NamedTuple):
    """A failed call.

    Attributes:
        error: what the user sees.
        from_server: the server itself said it, with ErrorInfo, not the connection.
        unavailable: nothing answered, or the server cannot serve now.
        cut: it looks like a stream whose server went.
        retry_seconds: of the RetryInfo with which the server said that the call was too early.
    """

    error: MvpruneError
    from_server: bool
    unavailable: bool
    cut: bool
    retry_seconds: float | None


def refusal(error: grpc.RpcError, address: str, timeout: float) -> Refusal:
    """Reads a failed call.

    Args:
        address: of the server.
        timeout: seconds that the call was given.
    """
    code, details = error.code(), error.details() or "no details given"
    told = _told(error)
    return Refusal(
        error=_exception(code, details, told, address, timeout),
        from_server=bool(told.reason),
        unavailable=code in _AWAY,
        cut=code in _CUT,
        retry_seconds=told.retry_seconds if code is _STATUS.RESOURCE_EXHAUSTED else None,
    )


class _Told(NamedTuple):
    """The details of an error: ErrorInfo, BadRequest and RetryInfo of its google.rpc.Status."""

    reason: str = ""
    violations: tuple[FieldViolation, ...] = ()
    retry_seconds: float | None = None


def _exception(code: Any, details: str, told: _Told, address: str, timeout: float) -> MvpruneError:
    if code is _STATUS.UNAVAILABLE:
        if told.reason:  # the server itself said it: something behind it is away
            return ServerUnreachable(f"the server at {address} is not available now: {details}")
        return ServerUnreachable(f"no server answers at {address} ({_cause(details)})")
    if code is _STATUS.CANCELLED:
        return ServerUnreachable(
            f"the server at {address} ended the call before it read it; it may have too many calls"
        )
    if code is _STATUS.DEADLINE_EXCEEDED:
        return ServerUnreachable(f"the server at {address} did not answer within {timeout:g} s")
    kind = _REFUSALS.get(code, ServerError)
    if issubclass(kind, InvalidArgument):
        return kind(details, code=code.name, reason=told.reason, violations=told.violations)
    return kind(details, code=code.name, reason=told.reason)


def _cause(details: str) -> str:
    """Why there is no connection: the end of what gRPC says."""
    _, untrusted, why = details.rpartition("CERTIFICATE_VERIFY_FAILED: ")
    if untrusted:
        return f"its certificate is not trusted, {why.removesuffix(': OK')}: MVPRUNE_CA_CERT names who vouches for it"
    return next(
        (cause for words, cause in _CAUSES.items() if words in details), details.rpartition(": ")[2].strip("[]")
    )


def _told(error: grpc.RpcError) -> _Told:
    # By pairs: older versions of grpc.aio give a mapping whose keys are pairs.
    packed = dict(tuple(error.trailing_metadata() or ())).get("grpc-status-details-bin")
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
