"""The client."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mvprune.client import endpoint
from mvprune.client.core import Core
from mvprune.client.job import Job
from mvprune.client.models import Artifact, Attempt, JobEvent, JobRecord, JobUpdate, MetricPoint
from mvprune.client.transport import Transport
from mvprune.client.wire import BlockingWire, iterate, run

if TYPE_CHECKING:
    from typing import Unpack

    from mvprune.client.admin import Admin
    from mvprune.client.catalog import MethodEntry, ModelEntry, TaskEntry
    from mvprune.client.sweep import Sweep
    from mvprune.client.sweep_models import SweepRecord
    from mvprune.client.upload_models import Upload, UploadProgress
    from mvprune.spec.options import SubmitOptions
    from mvprune.spec.sweep_options import SweepOptions


class Client:
    """A client of a compression service.

        with Client() as client:
            job = client.submit(model="bert-base-uncased", task="sst2", density=0.03)
            job = job.wait(on_progress=lambda job: print(job.progress))
            job.download("out/")

    An argument `job` takes a job's id, its full name (projects/P/jobs/J) or a Job. All methods may raise
    ServerUnreachable and RequestRefused. Threads may share a client.

    Args:
        address: host:port, or grpcs://host:port for TLS; default MVPRUNE_ADDRESS, else the address of a server on this
            machine, else 127.0.0.1:7070.
        project: the project of jobs that are given only by their id; default MVPRUNE_PROJECT, else "default".
        timeout: seconds that one call may take, at most a year. It does not apply to streams, waiting,
            downloads and uploads.
        token: an API token; default the contents of `token_file`, else MVPRUNE_TOKEN or the contents of the file
            MVPRUNE_TOKEN_FILE, else, for a server on this machine, the operator's token in its home folder.
        ca_cert: file with the CA certificate; default MVPRUNE_CA_CERT, else the certificates that this machine trusts.
        insecure: send the token without TLS to another machine.

    Raises:
        InvalidArgument: the address is malformed, a file cannot be read, the timeout is out of range, or the token
            would be sent without TLS.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        project: str | None = None,
        timeout: float = 30.0,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca_cert: str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        found = endpoint.find(address, token=token, token_file=token_file, ca_cert=ca_cert, insecure=insecure)
        self.address = found.address
        self.project = endpoint.project(project)
        transport = Transport(BlockingWire(found), found, timeout)
        self._core: Core[Job, Sweep] = Core(transport, self.project, functools.partial(Job, client=self), _sweep_class)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        run(self._core.close())

    def submit(
        self,
        *,
        model: str | os.PathLike[str],
        density: float | None = None,
        on_upload: Callable[[UploadProgress], None] | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Job:
        """Submits a job. Options that are not given have the server's defaults.

        Folders and files of this machine (`model`, `teacher`, `mask_from`, `train`, `validation`) are sent, once the
        server has accepted everything else. With `validate_only` they are checked and not sent.

        Args:
            model: a folder of this machine, a name that the server knows, a hub id, or server:/PATH, a folder of the
                server.
            density: fraction of the encoder's prunable weights that is KEPT, in (0, 1]; None, with `mask_from` or
                `pattern`: that of the mask or the pattern.
            on_upload: called while a folder or file is read and sent.
            options: see `SubmitOptions`.

        Raises:
            InvalidArgument: `violations` names each field with what was given and what is allowed.
            UploadError: a folder or file cannot be sent, or was changed meanwhile. Submitting again resumes.
        """
        return run(self._core.submit(model=model, density=density, on_upload=on_upload, **options))

    def get(self, job: str | JobRecord) -> Job:
        """Returns the current state of a job."""
        return run(self._core.get(job))

    def list(self, *, filter: str = "", order_by: str = "", limit: int | None = None) -> Iterator[Job]:
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
        return iterate(self._core.list(filter=filter, order_by=order_by, limit=limit))

    def watch(self, job: str | JobRecord, *, after_sequence: int = 0) -> Iterator[JobUpdate[Job]]:
        """Iterates over a job's changes until it has ended. Reconnects after an interruption.

        Args:
            after_sequence: skips events up to this number.
        """
        return iterate(self._core.watch(job, after_sequence=after_sequence))

    def wait(
        self, job: str | JobRecord, timeout: float | None = None, on_progress: Callable[[Job], None] | None = None
    ) -> Job:
        """Waits until a job has SUCCEEDED and returns it.

        Args:
            timeout: seconds to wait, a year at most; None: as long as it takes.
            on_progress: called with the job immediately and at each change.

        Raises:
            InvalidArgument: the timeout is out of range.
            JobFailed, JobCancelled: the job ended without success.
            WaitTimeout: the timeout has passed; the job continues.
        """
        return run(self._core.wait(job, timeout, on_progress))

    def logs(self, job: str | JobRecord, *, follow: bool = False) -> Iterator[bytes]:
        """Iterates over chunks of the current attempt's log; with `follow`, until the job has ended."""
        return iterate(self._core.logs(job, follow=follow))

    def cancel(self, job: str | JobRecord, reason: str = "", *, etag: str = "") -> Job:
        """Cancels a job; a cancelled job does not change. With `etag`, raises Conflict if the job has changed."""
        return run(self._core.cancel(job, reason, etag=etag))

    def retry(self, job: str | JobRecord, *, from_scratch: bool = False, etag: str = "") -> Job:
        """Puts a FAILED or CANCELLED job back into the queue. It resumes from its last checkpoint.

        Args:
            from_scratch: start from the beginning, without checkpoints.
            etag: the job's expected etag.

        Raises:
            FailedPrecondition: the job has not ended, or has SUCCEEDED.
            Conflict: the job's etag has changed.
        """
        return run(self._core.retry(job, from_scratch=from_scratch, etag=etag))

    def delete(self, job: str | JobRecord, *, allow_missing: bool = False, etag: str = "") -> None:
        """Deletes a job that has ended, with its logs and metrics; its artifact is kept.

        Raises:
            FailedPrecondition: the job has not ended.
            Conflict: the job's etag has changed.
        """
        run(self._core.delete(job, allow_missing=allow_missing, etag=etag))

    def events(self, job: str | JobRecord) -> Iterator[JobEvent]:
        """Iterates over the job's events, oldest first."""
        return iterate(self._core.events(job))

    def attempts(self, job: str | JobRecord) -> Iterator[Attempt]:
        """Iterates over the job's attempts, oldest first."""
        return iterate(self._core.attempts(job))

    def metrics(self, job: str | JobRecord) -> Iterator[MetricPoint]:
        """Iterates over the recorded values in the order of their arrival."""
        return iterate(self._core.metrics(job))

    def artifact(self, job: str | JobRecord) -> Artifact:
        """Returns the artifact of a job, or the artifact with that name (projects/P/artifacts/SHA256).

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has none, or none yet.
        """
        return run(self._core.artifact(job))

    def download(
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
        return run(self._core.download(job, directory, on_progress))

    def manifest(self, job: str | JobRecord) -> bytes:
        """Returns the manifest.json of the artifact of a job, or of the artifact with that name; verified.

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has no artifact, or none yet.
            IntegrityError: it is not the manifest that the artifact is named by.
        """
        return run(self._core.manifest(job))

    def sweep(
        self,
        *,
        model: str | os.PathLike[str] | None = None,
        density: float | None = None,
        on_upload: Callable[[UploadProgress], None] | None = None,
        **options: Unpack[SweepOptions],
    ) -> Sweep:
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
        return run(self._core.sweep(model=model, density=density, on_upload=on_upload, **options))

    def get_sweep(self, sweep: str | SweepRecord) -> Sweep:
        """Returns the current state of a sweep."""
        return run(self._core.get_sweep(sweep))

    def sweeps(self, *, limit: int | None = None) -> Iterator[Sweep]:
        """Iterates over the project's sweeps, newest first, at most `limit`. Raises InvalidArgument for one below 0."""
        return iterate(self._core.sweeps(limit=limit))

    def upload(
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
        return run(self._core.upload(path, kind=kind, on_progress=on_progress, validate_only=validate_only))

    def uploads(self, *, limit: int | None = None) -> Iterator[Upload]:
        """Iterates over the project's uploads, newest first, at most `limit`; InvalidArgument if it is below 0."""
        return iterate(self._core.uploads(limit=limit))

    def delete_upload(self, upload: str | Upload, *, allow_missing: bool = False) -> None:
        """Deletes an upload that no job uses.

        Args:
            upload: an upload, its reference, its name, or its digest, of which 8 digits are enough.

        Raises:
            FailedPrecondition: jobs or sweeps use it; the message names them.
        """
        run(self._core.delete_upload(upload, allow_missing=allow_missing))

    def models(self) -> Iterator[ModelEntry]:
        """Iterates over possible values of `model`: the server's models, then well-known models of the hub."""
        return iterate(self._core.models())

    def tasks(self) -> Iterator[TaskEntry]:
        """Iterates over possible values of `task`."""
        return iterate(self._core.tasks())

    def methods(self) -> Iterator[MethodEntry]:
        """Iterates over the pruning methods and their options."""
        return iterate(self._core.methods())

    @functools.cached_property
    def admin(self) -> Admin:
        """Manages tokens and projects."""
        from mvprune.client.admin import Admin  # few need it

        return Admin(self._core.admin)


def _sweep_class() -> type[Sweep]:
    from mvprune.client.sweep import Sweep  # few need it

    return Sweep
