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
    from mvprune import artifact, export, hf, publish, runtime  # noqa: F401 (attributes of this package)
    from mvprune.client.async_client import AsyncClient
    from mvprune.client.blocking.job import Job
    from mvprune.client.blocking.sweep import Sweep
    from mvprune.client.catalog import MethodEntry, MethodOption, ModelEntry, TaskEntry
    from mvprune.client.client import Client
    from mvprune.client.exceptions import (
        JobCancelled,
        JobError,
        JobFailed,
        NoPointPasses,
        SweepCancelled,
        SweepError,
        SweepFailed,
        SweepWaitTimeout,
        WaitTimeout,
    )
    from mvprune.client.job import AsyncJob
    from mvprune.client.models import (
        Accounting,
        Artifact,
        ArtifactFile,
        Attempt,
        AttemptState,
        Capacity,
        Failure,
        JobChange,
        JobEstimate,
        JobEvent,
        JobRecord,
        JobState,
        JobUpdate,
        LogLine,
        MetricPoint,
        PlannedPhase,
        Progress,
        ProjectUpdate,
        Queue,
        QueueEntry,
    )
    from mvprune.client.sweep import AsyncSweep
    from mvprune.client.sweep_models import (
        Axis,
        Objective,
        PointState,
        Recommendation,
        SweepCost,
        SweepCounts,
        SweepEstimate,
        SweepEvent,
        SweepPoint,
        SweepRecord,
        SweepSpec,
        SweepState,
    )
    from mvprune.client.upload_models import Upload, UploadFile, UploadProgress, UploadState
    from mvprune.common.exceptions import (
        AlreadyExists,
        Conflict,
        DestinationNotEmpty,
        DownloadError,
        FailedPrecondition,
        FieldViolation,
        HubUnreachable,
        IntegrityError,
        InvalidArgument,
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
        UploadError,
    )
    from mvprune.runtime import load
    from mvprune.sources.known_models import ModelSize
    from mvprune.spec.gate import Gate, GateResult
    from mvprune.spec.models import Baseline, Dataset, Policy, Spec, SweepPolicy, Teacher, Training
    from mvprune.spec.options import SubmitOptions
    from mvprune.spec.sweep_choices import PolicyOptions, RandomStrategy, SearchStrategy, TicketStrategy
    from mvprune.spec.sweep_options import SweepOptions

    __version__: str

__all__ = [
    "Accounting",
    "AlreadyExists",
    "Artifact",
    "ArtifactFile",
    "AsyncClient",
    "AsyncJob",
    "AsyncSweep",
    "Attempt",
    "AttemptState",
    "Axis",
    "Baseline",
    "Capacity",
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
    "HubUnreachable",
    "IntegrityError",
    "InvalidArgument",
    "Job",
    "JobCancelled",
    "JobChange",
    "JobError",
    "JobEstimate",
    "JobEvent",
    "JobFailed",
    "JobRecord",
    "JobState",
    "JobUpdate",
    "LimitExceeded",
    "LogLine",
    "MethodEntry",
    "MethodOption",
    "MetricPoint",
    "MlflowUnreachable",
    "ModelEntry",
    "ModelSize",
    "MvpruneError",
    "NoPointPasses",
    "NotAuthorised",
    "NotFound",
    "Objective",
    "PlannedPhase",
    "PointState",
    "Policy",
    "PolicyOptions",
    "Progress",
    "ProjectUpdate",
    "PushFailed",
    "Queue",
    "QueueEntry",
    "RandomStrategy",
    "Recommendation",
    "RequestRefused",
    "SearchStrategy",
    "ServerError",
    "ServerUnreachable",
    "Spec",
    "SubmitOptions",
    "Sweep",
    "SweepCancelled",
    "SweepCost",
    "SweepCounts",
    "SweepError",
    "SweepEstimate",
    "SweepEvent",
    "SweepFailed",
    "SweepOptions",
    "SweepPoint",
    "SweepPolicy",
    "SweepRecord",
    "SweepSpec",
    "SweepState",
    "SweepWaitTimeout",
    "TaskEntry",
    "Teacher",
    "TicketStrategy",
    "Training",
    "UnsafeArtifact",
    "Upload",
    "UploadError",
    "UploadFile",
    "UploadProgress",
    "UploadState",
    "WaitTimeout",
    "__version__",
    "load",
]


_HOMES = {
    "AsyncClient": "client.async_client",
    "AsyncJob": "client.job",
    "Client": "client.client",
    "Gate": "spec.gate",
    "GateResult": "spec.gate",
    "AsyncSweep": "client.sweep",
    "Job": "client.blocking.job",
    "PolicyOptions": "spec.sweep_choices",
    "RandomStrategy": "spec.sweep_choices",
    "SearchStrategy": "spec.sweep_choices",
    "TicketStrategy": "spec.sweep_choices",
    "Sweep": "client.blocking.sweep",
    "SweepOptions": "spec.sweep_options",
    "SubmitOptions": "spec.options",
    "MethodEntry": "client.catalog",
    "MethodOption": "client.catalog",
    "ModelEntry": "client.catalog",
    "ModelSize": "sources.known_models",
    "TaskEntry": "client.catalog",
    "load": "runtime",
}
_MANY = (
    "client.models",
    "spec.models",
    "client.sweep_models",
    "client.upload_models",
    "client.exceptions",
    "common.exceptions",
)
"""Modules that define the other names."""


_PACKAGES = ("artifact", "export", "hf", "infer", "publish", "runtime")
"""Packages that the documents name as attributes."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"mvprune.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'mvprune' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        return version("mvprune")
    for home in [_HOMES[name]] if name in _HOMES else _MANY:
        module = import_module(f"mvprune.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
