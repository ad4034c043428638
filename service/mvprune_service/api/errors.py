"""Why a call failed: one exception, and the one interceptor that puts it on the wire.

Answers carry google.rpc.Status: ErrorInfo (a reason in UPPER_SNAKE_CASE, domain "mvprune"), BadRequest for bad
fields, RetryInfo where trying again later is right.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from sqlalchemy.exc import InterfaceError, OperationalError

from mvprune_service.db.lifecycle import StaleLease
from mvprune_service.stores.base import StoreUnavailable

log = logging.getLogger(__name__)

DOMAIN = "mvprune"
_RETRY_AFTER_SECONDS = 2


class Violation(NamedTuple):
    """One bad field: its path, and a sentence with what was given and what is allowed."""

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
        retry: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.violations = tuple(violations)
        self.retry = retry


def invalid(*violations: Violation) -> ApiError:
    """INVALID_ARGUMENT with one entry for each bad field."""
    message = "; ".join(f"{field}: {description}" for field, description in violations)
    return ApiError(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", message, violations)


def not_found(name: str) -> ApiError:
    """NOT_FOUND for a resource name."""
    return ApiError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", f"there is no {name}")


def precondition(reason: str, message: str) -> ApiError:
    """FAILED_PRECONDITION: right call, wrong moment."""
    return ApiError(grpc.StatusCode.FAILED_PRECONDITION, reason, message)


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StaleLease):
        return ApiError(grpc.StatusCode.ABORTED, "LEASE_LOST", f"the lease is lost: {error}")
    if isinstance(error, OperationalError | InterfaceError):
        log.warning("database unavailable: %s", type(error.orig).__name__)
        return ApiError(grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE", "the database is away", retry=True)
    if isinstance(error, StoreUnavailable):
        return ApiError(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "the artifact store is away", retry=True)
    log.error("internal error", exc_info=error)
    return ApiError(grpc.StatusCode.INTERNAL, "INTERNAL", "internal error; the server's log has it")


def _status(error: ApiError) -> status_pb2.Status:
    status = status_pb2.Status(code=getattr(code_pb2, error.code.name), message=error.message)
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if error.violations:
        fields = [
            error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
            for field, description in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=fields))
    if error.retry:
        details.append(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=_RETRY_AFTER_SECONDS)))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


async def _abort(context: grpc.aio.ServicerContext, error: Exception) -> NoReturn:
    api_error = _as_api_error(error)
    # Metadata has a size limit of about 8 KiB in all.
    api_error.message = api_error.message[:800]
    api_error.violations = tuple(Violation(f[:100], d[:400]) for f, d in api_error.violations[:12])
    details = _status(api_error).SerializeToString()
    await context.abort(api_error.code, api_error.message, (("grpc-status-details-bin", details),))
    raise AssertionError("abort raises")


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Turns what servicers raise into statuses with details."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if handler.unary_unary:
            inner = handler.unary_unary

            async def unary(request: Any, context: grpc.aio.ServicerContext) -> Any:
                try:
                    return await inner(request, context)
                except Exception as error:
                    await _abort(context, error)

            return grpc.unary_unary_rpc_method_handler(unary, handler.request_deserializer, handler.response_serializer)
        if handler.unary_stream:
            stream = handler.unary_stream

            async def streaming(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
                try:
                    async for response in stream(request, context):
                        yield response
                except Exception as error:
                    await _abort(context, error)

            return grpc.unary_stream_rpc_method_handler(
                streaming, handler.request_deserializer, handler.response_serializer
            )
        return handler
