"""The calls of clients, written once for both: see `mvprune.client.wire`."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from mvprune.client import convert, watch
from mvprune.client.exceptions import WaitTimeout
from mvprune.client.models import (
    AnyJob,
    Artifact,
    JobChange,
    JobRecord,
)
from mvprune.client.names import is_artifact
from mvprune.client.observing import Observing
from mvprune.client.pages import listed
from mvprune.client.transport import DeadlinePassed, Transport, check_timeout
from mvprune.common.exceptions import FailedPrecondition
from mvprune.v1 import artifact_pb2, job_pb2

if TYPE_CHECKING:
    from typing import Unpack

    from mvprune.client.admin import AsyncAdmin
    from mvprune.client.catalog import MethodEntry, ModelEntry, TaskEntry
    from mvprune.client.issuers import AsyncIssuers
    from mvprune.client.sweep_models import SweepRecord
    from mvprune.client.sweeps import SweepCalls
    from mvprune.client.upload_models import Upload, UploadProgress
    from mvprune.client.uploads import UploadCalls
    from mvprune.client.webhooks import AsyncWebhooks
    from mvprune.spec.options import SubmitOptions
    from mvprune.spec.sweep_options import SweepOptions

AnySweep = TypeVar("AnySweep", bound="SweepRecord")


class Core(Observing[AnyJob], Generic[AnyJob, AnySweep]):
    """The methods of `AsyncClient`.

    Those of `Client` are made of them: see scripts/blocking_client.py.

    Args:
        transport: the way to the server.
        project: of jobs that are given only by their id.
        bind: makes a job of its fields.
        sweep_class: gives what makes a sweep of its fields; called once, when the first sweep is needed.
    """

    def __init__(
        self,
        transport: Transport,
        project: str,
        bind: Callable[..., AnyJob],
        sweep_class: Callable[[], Callable[..., AnySweep]],
    ) -> None:
        self.project = project
        self._transport = transport
        self._bind = bind
        self._sweep_class = sweep_class

    async def close(self) -> None:
        """Closes the connection."""
        await self._transport.wire.close()

    async def submit(
        self,
        *,
        model: str | os.PathLike[str],
        density: float | None = None,
        on_upload: Callable[[UploadProgress], None] | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AnyJob:
        """Submits a job. Options that are not given have the server's defaults.

        Folders and files of this machine (`model`, `teacher`, `mask_from`, `train`, `validation`) are sent, once the
        server has accepted everything else. With `validate_only` they are checked and not sent.

        Args:
            model: a folder of this machine, a name that the server knows, a hub id, hf://OWNER/NAME@REVISION, which is
                pinned to a commit, or server:/PATH, a folder of the server.
            density: fraction of the encoder's prunable weights that is KEPT, in (0, 1]; None, with `mask_from` or
                `pattern`: that of the mask or the pattern.
            on_upload: called while a folder or file is read and sent.
            options: see `SubmitOptions`.

        Raises:
            InvalidArgument: `violations` names each field with what was given and what is allowed.
            UploadError: a folder or file cannot be sent, or was changed meanwhile. Submitting again resumes.
        """
        from mvprune.client.inputs import visit_job  # few need it
        from mvprune.spec import messages

        def build(given: Mapping[str, Any]) -> job_pb2.CreateJobRequest:
            rest: Any = {name: value for name, value in given.items() if name not in ("model", "density")}
            return messages.create_request(f"projects/{self.project}", given["model"], given["density"], rest)

        given = {"model": model, "density": density, **options}
        answer = await self._uploads.call(given, visit_job, build, self._transport.jobs.CreateJob, on_upload)
        return self._bind(**convert.job_fields(answer))

    async def get(self, job: str | JobRecord) -> AnyJob:
        """Returns the current state of a job."""
        return await self._job(self._transport.jobs.GetJob, job_pb2.GetJobRequest(name=self._name(job)))

    async def list(
        self, *, filter: str = "", order_by: str = "", limit: int | None = None
    ) -> AsyncGenerator[AnyJob, None]:
        """Iterates over the project's jobs, at most `limit`. Pages are requested when needed.

        Args:
            filter: such as 'state = RUNNING AND (task = "squad" OR labels.team = "search")'; the fields are state,
                task, model, method, display_name, creator, sweep, failure, priority, metric,
                difference, duration, create_time, end_time and labels.KEY. Metrics and differences are fractions,
                durations seconds.
            order_by: create_time, state, task, model, metric, difference, duration, failure or labels.KEY, with
                " desc" for descending; jobs without a value are last. Default: newest first.

        Raises:
            InvalidArgument: the filter or the order is malformed; says where. The limit is below 0.
        """
        request = job_pb2.ListJobsRequest(parent=f"projects/{self.project}", filter=filter, order_by=order_by)
        async for message in listed(self._transport, self._transport.jobs.ListJobs, request, "jobs", limit):
            yield self._bind(**convert.job_fields(message))

    async def wait(
        self,
        job: str | JobRecord,
        timeout: float | None = None,  # noqa: ASYNC109 (the name that it has in Client)
        on_progress: Callable[[AnyJob], None] | None = None,
    ) -> AnyJob:
        """Waits until a job has SUCCEEDED and returns it.

        Args:
            timeout: seconds to wait, a year at most; None: as long as it takes.
            on_progress: called with the job immediately and at each change.

        Raises:
            InvalidArgument: the timeout is out of range.
            JobFailed, JobCancelled: the job ended without success.
            WaitTimeout: the timeout has passed; the job continues.
        """
        if timeout is not None:
            check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        report = on_progress or (lambda job: None)
        current = await self.get(job)
        report(current)
        try:
            if not current.state.is_terminal:
                async with aclosing(watch.watch(self._transport, current.name, 0, deadline)) as messages:
                    async for message in messages:
                        current = self._bind(**convert.job_fields(message.job))
                        report(current)
        except DeadlinePassed:
            raise WaitTimeout(current, timeout or 0) from None
        watch.check_success(current)
        return current

    async def update(self, job: str | JobRecord, *, etag: str = "", **change: Unpack[JobChange]) -> AnyJob:
        """Changes what people call a job and write about it, in any state; see `JobChange`. What is not given does not
        change. With `etag`, raises Conflict if the job has changed."""
        request = job_pb2.UpdateJobRequest(name=self._name(job), etag=etag, **change)
        return await self._job(self._transport.jobs.UpdateJob, request, repeatable=not (request.comment or etag))

    async def cancel(self, job: str | JobRecord, reason: str = "", *, etag: str = "") -> AnyJob:
        """Cancels a job; a cancelled job does not change. With `etag`, raises Conflict if the job has changed."""
        request = job_pb2.CancelJobRequest(name=self._name(job), reason=reason, etag=etag)
        return await self._job(self._transport.jobs.CancelJob, request, repeatable=not etag)

    async def retry(self, job: str | JobRecord, *, from_scratch: bool = False, etag: str = "") -> AnyJob:
        """Puts a FAILED or CANCELLED job back into the queue. It resumes from its last checkpoint.

        Args:
            from_scratch: start from the beginning, without checkpoints.
            etag: the job's expected etag.

        Raises:
            FailedPrecondition: the job has not ended, or has SUCCEEDED.
            Conflict: the job's etag has changed.
        """
        request = job_pb2.RetryJobRequest(name=self._name(job), from_scratch=from_scratch, etag=etag)
        return await self._job(self._transport.jobs.RetryJob, request, repeatable=False)

    async def delete(self, job: str | JobRecord, *, allow_missing: bool = False, etag: str = "") -> None:
        """Deletes a job that has ended, with its logs and metrics; its artifact is kept.

        Raises:
            FailedPrecondition: the job has not ended.
            Conflict: the job's etag has changed.
        """
        request = job_pb2.DeleteJobRequest(name=self._name(job), allow_missing=allow_missing, etag=etag)
        await self._transport.call(self._transport.jobs.DeleteJob, request, repeatable=allow_missing)

    async def artifact(self, job: str | JobRecord) -> Artifact:
        """Returns the artifact of a job, or the artifact with that name (projects/P/artifacts/SHA256).

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has none, or none yet.
        """
        if isinstance(job, str) and is_artifact(job):
            name = job
        else:
            found = await self.get(job)
            watch.check_success(found)
            if not found.artifact:
                text = f"job {found.id} is {found.state} and has no artifact yet: wait for it"
                raise FailedPrecondition(text, code="FAILED_PRECONDITION", reason="NO_ARTIFACT_YET")
            name = found.artifact
        request = artifact_pb2.GetArtifactRequest(name=name)
        return convert.artifact(await self._transport.call(self._transport.artifacts.GetArtifact, request))

    async def artifacts(
        self, *, filter: str = "", order_by: str = "", limit: int | None = None
    ) -> AsyncGenerator[Artifact, None]:
        """Iterates over the project's artifacts, newest first unless `order_by` says otherwise, at most `limit`.

        Args:
            filter: as in `list`, of job, task, model, method, create_time and expire_time.
            order_by: create_time or expire_time, with " desc" for descending.

        Raises:
            InvalidArgument: the filter or the order is malformed, or the limit is below 0.
        """
        parent = f"projects/{self.project}"
        request = artifact_pb2.ListArtifactsRequest(parent=parent, filter=filter, order_by=order_by)
        stub = self._transport.artifacts.ListArtifacts
        async for message in listed(self._transport, stub, request, "artifacts", limit):
            yield convert.artifact(message)

    async def download(
        self,
        job: str | JobRecord | Artifact,
        directory: str | os.PathLike[str],
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Downloads and verifies the artifact of a job. The folder appears when it is complete.

        An interrupted download is resumed. If the folder already contains the artifact, it is only verified. If another
        download writes to it, this one waits for that.

        Args:
            on_progress: called with the downloaded bytes and the total bytes.

        Returns:
            The folder.

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has no artifact, or none yet.
            DestinationNotEmpty: the folder has other contents.
            DownloadError: the artifact's paths are unsafe, its bytes are wrong, or the disk refuses them.
        """
        from mvprune.client import download  # urllib is slow to import

        artifact = job if isinstance(job, Artifact) else await self.artifact(job)
        wire = self._transport.wire
        report = wire.callback(on_progress or (lambda done, total: None))
        return await wire.work(functools.partial(download.download, self._transport, artifact, Path(directory), report))

    async def manifest(self, job: str | JobRecord) -> bytes:
        """Returns the manifest.json of the artifact of a job, or of the artifact with that name; verified.

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has no artifact, or none yet.
            IntegrityError: it is not the manifest that the artifact is named by.
        """
        from mvprune.client import download  # urllib is slow to import

        artifact = await self.artifact(job)
        return await self._transport.wire.work(lambda cancelled: download.manifest(self._transport, artifact))

    async def sweep(
        self,
        *,
        model: str | os.PathLike[str] | None = None,
        density: float | None = None,
        on_upload: Callable[[UploadProgress], None] | None = None,
        **options: Unpack[SweepOptions],
    ) -> AnySweep:
        """Creates a sweep: a family of jobs that differ in some parameters. Options that are not given have the
        server's defaults. Folders and files of this machine are sent as by `submit`, those in axes and points too.

        Args:
            model: as of `submit`; None where the axes have it.
            density: as of `submit`; None where the axes have it, and for a search, which has its own densities.
            on_upload: as of `submit`.
            options: see `SweepOptions`.

        Raises:
            InvalidArgument: `violations` names each field with what was given and what is allowed.
            UploadError: as of `submit`.
        """
        return await self._sweeps.create({"model": model, "density": density, **options}, on_upload)

    async def get_sweep(self, sweep: str | SweepRecord) -> AnySweep:
        """Returns the current state of a sweep."""
        return await self._sweeps.get(sweep)

    async def sweeps(
        self, *, filter: str = "", order_by: str = "", limit: int | None = None
    ) -> AsyncGenerator[AnySweep, None]:
        """Iterates over the project's sweeps, newest first unless `order_by` says otherwise, at most `limit`.

        Args:
            filter: as in `list`, of state, display_name, creator, create_time, end_time and labels.KEY.
            order_by: create_time, end_time, state or display_name, with " desc" for descending.

        Raises:
            InvalidArgument: the filter or the order is malformed, or the limit is below 0.
        """
        async for sweep in self._sweeps.list(filter, order_by, limit):
            yield sweep

    async def upload(
        self,
        path: str | os.PathLike[str],
        *,
        kind: Literal["model", "data"] | None = None,
        on_progress: Callable[[UploadProgress], None] | None = None,
        validate_only: bool = False,
    ) -> Upload:
        """Sends a model's folder or a data file to the project, as `submit` does. Jobs name it by its `reference`.

        What the server has already is not sent; an interrupted upload is resumed.

        Args:
            kind: "model" or "data"; None: a folder is a model, a file is data.
            on_progress: called while it is read and sent.
            validate_only: check it, its size and the quota, but send nothing.

        Raises:
            InvalidArgument: it must not be sent, or no job could use it.
            LimitExceeded: the project's quota has no room for it.
            UploadError: it cannot be sent, or was changed meanwhile.
        """
        return await self._uploads.create(path, kind, on_progress, validate_only=validate_only)

    async def uploads(
        self, *, filter: str = "", order_by: str = "", limit: int | None = None
    ) -> AsyncGenerator[Upload, None]:
        """Iterates over the project's uploads, newest first unless `order_by` says otherwise, at most `limit`.

        Args:
            filter: as in `list`, of kind, display_name, creator, total_bytes, create_time and ready_time.
            order_by: create_time, total_bytes or display_name, with " desc" for descending.

        Raises:
            InvalidArgument: the filter or the order is malformed, or the limit is below 0.
        """
        async for upload in self._uploads.list(filter, order_by, limit):
            yield upload

    async def delete_upload(self, upload: str | Upload, *, allow_missing: bool = False) -> None:
        """Deletes an upload that no job uses.

        Args:
            upload: an upload, its reference, its name, or its digest, of which 8 digits are enough.

        Raises:
            FailedPrecondition: jobs or sweeps use it; the message names them.
        """
        await self._uploads.delete(upload, allow_missing=allow_missing)

    async def models(self) -> AsyncGenerator[ModelEntry, None]:
        """Iterates over possible values of `model`: the server's models, then well-known models of the hub."""
        from mvprune.client import catalog  # few need it

        async for model in catalog.models(self._transport):
            yield model

    async def tasks(self) -> AsyncGenerator[TaskEntry, None]:
        """Iterates over possible values of `task`."""
        from mvprune.client import catalog  # few need it

        async for task in catalog.tasks(self._transport):
            yield task

    async def methods(self) -> AsyncGenerator[MethodEntry, None]:
        """Iterates over the pruning methods and their options."""
        from mvprune.client import catalog  # few need it

        async for method in catalog.methods(self._transport):
            yield method

    @functools.cached_property
    def admin(self) -> AsyncAdmin:
        """Manages tokens and projects."""
        from mvprune.client.admin import AsyncAdmin  # few need it

        return AsyncAdmin(self._transport)

    @functools.cached_property
    def issuers(self) -> AsyncIssuers:
        """Manages the issuers of OpenID Connect whose tokens the server accepts."""
        from mvprune.client.issuers import AsyncIssuers  # few need it

        return AsyncIssuers(self._transport)

    @functools.cached_property
    def webhooks(self) -> AsyncWebhooks:
        """Manages the webhooks of the project."""
        from mvprune.client.webhooks import AsyncWebhooks  # few need it

        return AsyncWebhooks(self._transport, self.project)

    @functools.cached_property
    def _sweeps(self) -> SweepCalls[AnySweep]:
        from mvprune.client.sweeps import SweepCalls  # few need it

        return SweepCalls(self._transport, self.project, self._sweep_class(), self.download, self._uploads)

    @functools.cached_property
    def _uploads(self) -> UploadCalls:
        from mvprune.client.uploads import UploadCalls  # not all need it

        return UploadCalls(self._transport, self.project)

    async def _job(self, method: Any, request: Any, *, repeatable: bool = True) -> AnyJob:
        return self._bind(**convert.job_fields(await self._transport.call(method, request, repeatable=repeatable)))
