"""Why a call failed: one exception, and how it is sent.

Answers have a google.rpc.Status: ErrorInfo (a reason in UPPER_SNAKE_CASE, domain "mvprune"), BadRequest for bad
fields, RetryInfo if the client should try again later.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Concatenate, NamedTuple, NoReturn, ParamSpec, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from mvprune.spec.problem import must_be
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.domain.leases import StaleLease
from mvprune_service.observability.probes import words
from mvprune_service.stores.base import StoreDamaged, StoreUnavailable

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

DOMAIN = "mvprune"
_RETRY_SECONDS = 2.0
# A client takes 8 KiB of metadata; a byte of the message can take three there, and the details are sent in base64.
_MESSAGE_BYTES, _FIELD_BYTES, _DESCRIPTION_BYTES = 800, 100, 400
_VIOLATIONS, _VIOLATIONS_BYTES = 12, 3200  # in all


class Violation(NamedTuple):
    """One bad field: its path, and what it must be, what was given and, where there is one, the remedy."""

    field: str
    description: str


class ApiError(Exception):
    """A call that is answered with an error."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        violations: Sequence[Violation] = (),
        *,
        retry_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.violations = tuple(violations)
        self.retry_seconds = retry_seconds


def bad(field: str, given: object, rule: str) -> Violation:
    """A violation: the field must be `rule`, which may end in a remedy after a semicolon."""
    return Violation(field, must_be(rule, given))


def invalid(*violations: Violation) -> ApiError:
    """INVALID_ARGUMENT with one entry for each bad field."""
    message = "; ".join(f"{field}: {description}" for field, description in violations)
    return ApiError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", message, violations)


def not_found(name: str) -> ApiError:
    """NOT_FOUND for a resource name."""
    return ApiError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", f"there is no {name}")


def finding(name: object, work: Callable[Concatenate[Tx, P], T | None]) -> Callable[Concatenate[Tx, P], T]:
    """The work of a transaction, which raises ApiError (NOT_FOUND) where it gives None or False: it changed nothing."""

    @functools.wraps(work)
    def found(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(tx, *args, **kwargs)
        if result is None or result is False:
            raise not_found(str(name))
        return result

    return found


def precondition(reason: str, message: str) -> ApiError:
    """FAILED_PRECONDITION: right call, wrong moment."""
    return ApiError(grpc.StatusCode.FAILED_PRECONDITION, reason, message)


def etag_mismatch(name: object) -> ApiError:
    """ABORTED: the resource is not at the etag of the request any more."""
    return ApiError(grpc.StatusCode.ABORTED, "ETAG_MISMATCH", f"{name} has changed; read it again")


def wrong_state(name: object, state: StrEnum, command: StrEnum, *, has_ended: bool) -> ApiError:
    """FAILED_PRECONDITION: the command does not apply in this state."""
    already = " already" if has_ended else ""
    return precondition("WRONG_STATE", f"{name} is{already} {state.value}: {command.value.lower()} does not apply")


def as_api_error(error: Exception) -> ApiError:
    """The answer to an exception. An error of the server itself is logged, and its text is not sent."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StaleLease):
        return ApiError(grpc.StatusCode.ABORTED, "LEASE_LOST", f"the lease is lost: {error}")
    if isinstance(error, DatabaseUnavailable):
        log.warning("database unavailable: %s", words(error))
        return ApiError(
            grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE", "the database is away", retry_seconds=_RETRY_SECONDS
        )
    if isinstance(error, StoreDamaged):
        log.error("%s", words(error))
        return precondition("STORE_DAMAGED", "the artifact store is damaged; the server's log says where")
    if isinstance(error, StoreUnavailable):
        return ApiError(
            grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "the artifact store is away", retry_seconds=_RETRY_SECONDS
        )
    log.error("internal error", exc_info=error)
    return ApiError(grpc.StatusCode.INTERNAL, "INTERNAL", "internal error; the server's log has it")


def status_of(error: ApiError) -> status_pb2.Status:
    """An error as a message."""
    status = status_pb2.Status(code=getattr(code_pb2, error.code.name), message=error.message)
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if error.violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
            for field, description in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    if error.retry_seconds is not None:
        delay = Duration()
        delay.FromMilliseconds(math.ceil(1000 * error.retry_seconds))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


async def abort(context: grpc.aio.ServicerContext, api_error: ApiError) -> NoReturn:
    """Ends a call with an error."""
    api_error.message = _cut(api_error.message, _MESSAGE_BYTES)
    api_error.violations = tuple(_first(api_error.violations))
    details = status_of(api_error).SerializeToString()
    await context.abort(api_error.code, api_error.message, (("grpc-status-details-bin", details),))
    raise AssertionError("abort raises")


def _first(violations: Sequence[Violation]) -> Iterator[Violation]:
    """As many as fit into the answer, at least one."""
    left = _VIOLATIONS_BYTES
    for field, description in violations[:_VIOLATIONS]:
        shown = Violation(_cut(field, _FIELD_BYTES), _cut(description, _DESCRIPTION_BYTES))
        left -= sum(len(text.encode()) for text in shown)
        if left < 0:
            return
        yield shown


def _cut(text: str, size: int) -> str:
    """The beginning of a text, at most `size` bytes of UTF-8."""
    return text.encode(errors="replace")[:size].decode(errors="ignore")
