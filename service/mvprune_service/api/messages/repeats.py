"""Requests that a client may repeat: the same id with the same body makes nothing a second time."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from mvprune_service.api.access.errors import ApiError, Violation, invalid
from mvprune_service.db.lifecycle import canonical

M = TypeVar("M", bound=Message)
_LONGEST = 64  # characters of an id


def check_request_id(request_id: str) -> None:
    """Raises ApiError for an id that is too long."""
    if len(request_id) > _LONGEST:
        raise invalid(Violation("request_id", f"must be at most {_LONGEST} characters, got {len(request_id)}"))


def digest(request: M) -> str:
    """A digest of what a request asks for: without its id, and whether it only validates."""
    body = type(request)()
    body.CopyFrom(request)
    body.ClearField("request_id")
    body.ClearField("validate_only")
    return hashlib.sha256(canonical(body)).hexdigest()


def check_same(kind: str, request_id: str, stored: str, body: str) -> None:
    """Raises ApiError where an id belongs to a request with another body.

    Args:
        kind: of what the request creates: job, sweep.
        stored, body: digests of the earlier request and of this one.
    """
    if stored != body:
        message = f"request_id {request_id!r} was used for another {kind}"
        raise ApiError(grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", message)


def exists(kind: str, name: object) -> ApiError:
    """ALREADY_EXISTS for a resource name that is taken."""
    return ApiError(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", f"a {kind} {name} exists already")
