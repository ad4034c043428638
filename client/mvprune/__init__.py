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
    from mvprune._async_client import AsyncClient
    from mvprune._catalog import MethodEntry, MethodOption, ModelEntry, TaskEntry
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
        MlflowUnreachable,
        MvpruneError,
        NotAuthorised,
        NotFound,
        PushFailed,
        RequestRefused,
        ServerError,
        ServerUnreachable,
        UnsafeArtifact,
        WaitTimeout,
    )
    from mvprune._job import AsyncJob, Job
    from mvprune._models import (
        Accounting,
        Artifact,
        ArtifactFile,
        Attempt,
        AttemptState,
        Dataset,
        Failure,
        Gate,
        GateResult,
        JobEvent,
        JobRecord,
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
    from mvprune._submit_options import SubmitOptions
    from mvprune.artifact import load

    __version__: str

__all__ = [
    "Accounting",
    "AlreadyExists",
    "Artifact",
    "ArtifactFile",
    "AsyncClient",
    "AsyncJob",
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
    "Gate",
    "GateResult",
    "IntegrityError",
    "InvalidArgument",
    "Job",
    "JobCancelled",
    "JobError",
    "JobEvent",
    "JobFailed",
    "JobRecord",
    "JobState",
    "JobUpdate",
    "LimitExceeded",
    "MethodEntry",
    "MethodOption",
    "MetricPoint",
    "MlflowUnreachable",
    "ModelEntry",
    "ModelSize",
    "MvpruneError",
    "NotAuthorised",
    "NotFound",
    "Policy",
    "Progress",
    "PushFailed",
    "RequestRefused",
    "ServerError",
    "ServerUnreachable",
    "Spec",
    "SubmitOptions",
    "TaskEntry",
    "Teacher",
    "Training",
    "UnsafeArtifact",
    "WaitTimeout",
    "__version__",
    "load",
]


_HOMES = {
    "AsyncClient": "_async_client",
    "AsyncJob": "_job",
    "Client": "_client",
    "Job": "_job",
    "SubmitOptions": "_submit_options",
    "MethodEntry": "_catalog",
    "MethodOption": "_catalog",
    "ModelEntry": "_catalog",
    "TaskEntry": "_catalog",
    "load": "artifact",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'mvprune' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        return version("mvprune")
    if name in _HOMES:
        return getattr(import_module(f"mvprune.{_HOMES[name]}"), name)
    models = import_module("mvprune._models")
    return getattr(models, name) if hasattr(models, name) else getattr(import_module("mvprune._exceptions"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
