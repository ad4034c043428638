"""The options of `Client.submit` that are about the call, not about the job, and what names a job in options."""

from __future__ import annotations

from typing import Protocol, TypedDict, runtime_checkable


@runtime_checkable
class NamedJob(Protocol):
    """A job, such as `Client.get` returns."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class CallOptions(TypedDict, total=False):
    """The call.

    Attributes:
        request_id: a repeated call with the same id and content returns the same job, until that job is deleted;
            default: a new id.
        run_id: in place of a request_id: the same call in the same run (of a CI system, say) returns the same job.
        validate_only: check the job and fill in defaults, but start nothing.
    """

    request_id: str | None
    run_id: str | None
    validate_only: bool | None
