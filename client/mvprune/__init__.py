"""Movement pruning as a service: the client.

    from mvprune import Client, load

    with Client() as client:
        job = client.submit(model="bert-base-uncased", task="sst2", density=0.03)
        job.wait()
        job.download("out/")
    model = load("out/")

Everything is imported on first use, so that `import mvprune` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mvprune._client import Client
    from mvprune._exceptions import (
        AlreadyExists,
        Conflict,
        DestinationNotEmpty,
        DownloadError,
        FailedPrecondition,
        FieldViolation,
        IntegrityError,
        InvalidArgument,
        JobCancelled,
        JobError,
        JobFailed,
        LimitExceeded,
        MvpruneError,
        NotAuthorised,
        NotFound,
        RequestRefused,
        ServerError,
        ServerUnreachable,
        UnsafeArtifact,
        WaitTimeout,
    )
    from mvprune._models import (
        Accounting,
        Artifact,
        ArtifactFile,
        Attempt,
        AttemptState,
        Dataset,
        Failure,
        Job,
        JobEvent,
        JobState,
        JobUpdate,
        MetricPoint,
        ModelSize,
        Policy,
        Progress,
        Spec,
        Teacher,
        Training,
    )
    from mvprune.artifact import load

    __version__: str

__all__ = [
    "Accounting",
    "AlreadyExists",
    "Artifact",
    "ArtifactFile",
    "Attempt",
    "AttemptState",
    "Client",
    "Conflict",
    "Dataset",
    "DestinationNotEmpty",
    "DownloadError",
    "FailedPrecondition",
    "Failure",
    "FieldViolation",
    "IntegrityError",
    "InvalidArgument",
    "Job",
    "JobCancelled",
    "JobError",
    "JobEvent",
    "JobFailed",
    "JobState",
    "JobUpdate",
    "LimitExceeded",
    "MetricPoint",
    "ModelSize",
    "MvpruneError",
    "NotAuthorised",
    "NotFound",
    "Policy",
    "Progress",
    "RequestRefused",
    "ServerError",
    "ServerUnreachable",
    "Spec",
    "Teacher",
    "Training",
    "UnsafeArtifact",
    "WaitTimeout",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'mvprune' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        return version("mvprune")
    if name == "Client":
        return import_module("mvprune._client").Client
    if name == "load":
        return import_module("mvprune.artifact").load
    models = import_module("mvprune._models")
    return getattr(models, name) if hasattr(models, name) else getattr(import_module("mvprune._exceptions"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
