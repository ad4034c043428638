"""The exceptions of this package.

MvpruneError
├── ServerUnreachable          no server answers, or not in time
├── RequestRefused             the server returned an error: .code, .reason
│   ├── InvalidArgument        .violations name the fields
│   ├── NotFound
│   ├── NotAuthorised          no valid token, or one without the needed scope
│   ├── AlreadyExists
│   ├── FailedPrecondition     not allowed in the resource's state
│   ├── Conflict               the resource has changed
│   ├── LimitExceeded          a quota, or too many calls
│   └── ServerError            the server failed
├── JobError                   the job ended without a result: .job
│   ├── JobFailed              .job.failure says why
│   └── JobCancelled
├── WaitTimeout                the timeout has passed, the job continues: .job
├── SweepError                 the sweep ended without a result: .sweep
│   ├── SweepFailed            .sweep.state_reason says why
│   └── SweepCancelled
├── SweepWaitTimeout           the timeout has passed, the sweep continues: .sweep
├── NoPointPasses              no point of the sweep passes its gates: .sweep
├── PushFailed                 MLflow or the Hub rejected an artifact
│   ├── MlflowUnreachable
│   └── HubUnreachable
├── UploadError                a model or a data file could not be sent
└── DownloadError
    ├── DestinationNotEmpty    the folder has other contents
    ├── UnsafeArtifact         paths that must not be written
    └── IntegrityError         bytes that differ from the manifest
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class MvpruneError(Exception):
    """Base of all errors that this package raises."""


class ServerUnreachable(MvpruneError):
    """No server answers at the address before the deadline."""


class PushFailed(MvpruneError):
    """MLflow or the Hub rejected the artifact; the message says why. Pushing it again resumes."""


class MlflowUnreachable(PushFailed):
    """No server answers at MLflow's address."""


class HubUnreachable(PushFailed):
    """No server answers at the Hub's address."""


class FieldViolation(NamedTuple):
    """One wrong field of a request: its path (job.spec.target_density), the rule and the value."""

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
    """An error about one field, raised by the client: its path, the rule and the value."""
    return InvalidArgument(violations=[FieldViolation(field, description)])


def renamed(refusal: InvalidArgument, name: Callable[[str], str]) -> InvalidArgument:
    """The same refusal, where fields have the names that `name` gives them."""
    violations = [FieldViolation(name(field), description) for field, description in refusal.violations]
    return InvalidArgument(str(refusal), code=refusal.code, reason=refusal.reason, violations=violations)


class NotFound(RequestRefused):
    """The resource does not exist."""


class NotAuthorised(RequestRefused):
    """The token is missing or invalid (UNAUTHENTICATED), or lacks the scope (PERMISSION_DENIED)."""


class AlreadyExists(RequestRefused):
    """The name or the request id exists already."""


class FailedPrecondition(RequestRefused):
    """The state of the resource does not allow the call."""


class Conflict(RequestRefused):
    """The resource has changed; read it again. Reason ETAG_MISMATCH: its etag is not the given one."""


class LimitExceeded(RequestRefused):
    """A quota is exhausted (reason QUOTA_EXCEEDED), or there were too many calls (reason RATE_LIMITED)."""


class ServerError(RequestRefused):
    """The server failed."""


class UploadError(MvpruneError):
    """A model's folder or a data file could not be sent. Sending it again resumes."""


class DownloadError(MvpruneError):
    """An artifact could not be downloaded."""


class DestinationNotEmpty(DownloadError):
    """The target folder has other contents."""


class UnsafeArtifact(DownloadError):
    """The artifact's list of files is not safe to write."""


class IntegrityError(DownloadError):
    """Bytes differ from their SHA-256."""
