"""What can go wrong.

MvpruneError
├── ServerUnreachable          nothing answers, or not in time
├── RequestRefused             the server said no: .code, .reason
│   ├── InvalidArgument        .violations name the fields
│   ├── NotFound
│   ├── NotAuthorised          no token or a bad one, or one that may not do this
│   ├── AlreadyExists
│   ├── FailedPrecondition     right call, wrong moment
│   ├── Conflict               it was changed meanwhile
│   ├── LimitExceeded          a quota, or too many calls
│   └── ServerError            the server's own fault
├── JobError                   the work ended badly: .job
│   ├── JobFailed              .job.failure says why
│   └── JobCancelled
├── WaitTimeout                the time is up, the job goes on: .job
├── PushFailed                 MLflow did not take an artifact
│   └── MlflowUnreachable
└── DownloadError
    ├── DestinationNotEmpty    the folder holds something else
    ├── UnsafeArtifact         paths that must not be written
    └── IntegrityError         bytes that differ from the manifest
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MvpruneError(Exception):
    """Base of all errors that this package raises."""


class ServerUnreachable(MvpruneError):
    """Nothing answers at the address, or not before the deadline."""


class PushFailed(MvpruneError):
    """MLflow did not take the artifact; the text says why. Pushed again, it goes on."""


class MlflowUnreachable(PushFailed):
    """Nothing answers at MLflow's address."""


class FieldViolation(NamedTuple):
    """One bad field of a request: its path (job.spec.target_density) and what was given and is allowed."""

    field: str
    description: str


class RequestRefused(MvpruneError):
    """The server answered with an error.

    Attributes:
        code: gRPC status code, e.g. "NOT_FOUND".
        reason: the server's reason, e.g. "WRONG_STATE"; empty if it gave none.
    """

    def __init__(self, message: str, *, code: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class InvalidArgument(RequestRefused):
    """One or more fields are wrong: see `violations`."""

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "INVALID_ARGUMENT",
        reason: str = "",
        violations: Sequence[FieldViolation] = (),
    ) -> None:
        text = "; ".join(f"{field}: {description}" for field, description in violations)
        super().__init__(text or message, code=code, reason=reason)
        self.violations = tuple(violations)


def bad_field(field: str, description: str) -> InvalidArgument:
    """The refusal of one field, by this side: its path, and what was given and is allowed."""
    return InvalidArgument(violations=[FieldViolation(field, description)])


class NotFound(RequestRefused):
    """There is no such resource."""


class NotAuthorised(RequestRefused):
    """The caller is not known (code UNAUTHENTICATED), or may not do this (code PERMISSION_DENIED)."""


class AlreadyExists(RequestRefused):
    """The name or the request id is taken."""


class FailedPrecondition(RequestRefused):
    """The resource is not in a state that allows this."""


class Conflict(RequestRefused):
    """The resource was changed meanwhile: read it again. Reason ETAG_MISMATCH: it is no longer at the given etag."""


class LimitExceeded(RequestRefused):
    """A quota is used up (reason QUOTA_EXCEEDED), or calls came too fast for too long (reason RATE_LIMITED)."""


class ServerError(RequestRefused):
    """The server failed."""


class DownloadError(MvpruneError):
    """An artifact could not be downloaded."""


class DestinationNotEmpty(DownloadError):
    """The folder to download to holds something else."""


class UnsafeArtifact(DownloadError):
    """The artifact's list of files is not safe to write."""


class IntegrityError(DownloadError):
    """Bytes differ from their SHA-256."""
