"""The client."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune import _convert, _endpoint, _spec, _watch
from mvprune._exceptions import (
    FailedPrecondition,
    JobCancelled,
    JobFailed,
    WaitTimeout,
)
from mvprune._models import Artifact, Attempt, Job, JobEvent, JobState, JobUpdate, MetricPoint
from mvprune._names import is_artifact, job_name
from mvprune._pages import PAGE, pages
from mvprune._transport import DeadlinePassed, Transport
from mvprune.v1 import artifact_pb2, job_pb2

if TYPE_CHECKING:
    from mvprune._admin import Admin


class Client:
    """Talks to a compression service.

        with Client() as client:
            job = client.submit(model="bert-base-uncased", task="sst2", density=0.03)
            job = job.wait(on_progress=lambda job: print(job.progress))
            job.download("out/")

    Wherever a job is asked for, its id, its full name (projects/P/jobs/J) or a Job will do. All methods may raise
    ServerUnreachable and RequestRefused. A client may be shared by threads.

    Args:
        address: host:port, or grpcs://host:port for TLS; default MVPRUNE_ADDRESS, else that of a server on this
            machine, else 127.0.0.1:7070.
        project: the project of jobs that are given by id alone; default MVPRUNE_PROJECT, else "default".
        timeout: seconds that one call may take. Streams, waiting and downloads have no limit but their own.
        token: an API token; default what is in `token_file`, else MVPRUNE_TOKEN, else, for a server on this machine,
            the operator's token that it wrote to its home folder.
        ca_cert: file with who vouches for the server; default MVPRUNE_CA_CERT, else whoever this machine trusts.
        insecure: send the token without TLS to another machine.

    Raises:
        InvalidArgument: the address is malformed, a file cannot be read, or the token would go out unprotected.
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
        endpoint = _endpoint.find(address, token=token, token_file=token_file, ca_cert=ca_cert, insecure=insecure)
        self.address = endpoint.address
        self.project = project or os.environ.get("MVPRUNE_PROJECT") or "default"
        self._transport = Transport(endpoint, timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def submit(
        self,
        *,
        model: str | os.PathLike[str],
        density: float,
        task: str = "",
        method: str = "movement",
        train: str | os.PathLike[str] = "",
        validation: str | os.PathLike[str] = "",
        dataset: str = "",
        dataset_config: str = "",
        text_column: str = "",
        text_pair_column: str = "",
        label_column: str = "",
        model_revision: str = "",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_density_miss: bool = False,
        teacher: str | os.PathLike[str] | Job = "",
        teacher_revision: str = "",
        temperature: float | None = None,
        alpha: float | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        max_length: int | None = None,
        accumulation_steps: int | None = None,
        precision: str | None = None,
        train_embeddings: bool | None = None,
        compile: bool | None = None,
        gradient_checkpointing: bool | None = None,
        deterministic: bool | None = None,
        evaluate_every: int | None = None,
        patience: int | None = None,
        keep_best: bool | None = None,
        gpus: float | None = None,
        cpus: float | None = None,
        memory_bytes: int | None = None,
        max_attempts: int | None = None,
        priority: int | None = None,
        max_runtime: float | None = None,
        max_queue_time: float | None = None,
        start_timeout: float | None = None,
        checkpoint_interval: float | None = None,
        retention: float | None = None,
        allow_smaller_batch: bool | None = None,
        display_name: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str = "",
        run_id: str = "",
        validate_only: bool = False,
        **method_options: float | str | None,
    ) -> Job:
        """Submits a job. What is left out gets the server's default.

        Args:
            model: a folder (made absolute if it is one here), a name that the server knows, or a hub id.
            density: fraction of the encoder's prunable weights that is KEPT, in (0, 1].
            task: sst2, mrpc, squad, …; text-classification if data of your own is given and no task.
            method: how weights are chosen: movement, soft_movement, l0, magnitude, one_shot_magnitude or random.
            include, exclude: patterns over names of modules, such as "*.attention.*": what is pruned, and what is not.
            allow_density_miss: a result that misses its density by more than 10 % is a result all the same.
            teacher: distil from this: a model, a job (or "job:ID"), or "train" for a dense model that is trained first.
            temperature, alpha: of the distillation; alpha is the teacher's part of the loss.
            train, validation: your own files (csv, tsv, jsonl, parquet), instead of the task's data.
            dataset, dataset_config: a data set on the hub instead, e.g. stanfordnlp/imdb.
            text_column, text_pair_column, label_column: its columns, where their names do not tell.
            max_steps, epochs: length of the training; one of them.
            max_length: tokens; longer inputs are cut.
            accumulation_steps: passes that a batch is cut into.
            precision: fp32 or bf16.
            evaluate_every: steps; what patience (evaluations without a better one, at the final density, after which
                it stops) and keep_best (the best evaluated model is the result) need.
            gpus, cpus, memory_bytes: resources of one attempt.
            priority: -100 to 100; each point counts as ten minutes in the queue.
            max_runtime, max_queue_time: seconds that it may run in all, and wait at a stretch, before it FAILS.
            start_timeout, checkpoint_interval: seconds that an attempt may take to start; between checkpoints.
            retention: seconds from its end until the job, its logs and its artifact are deleted.
            allow_smaller_batch: after OUT_OF_MEMORY, try again with batches cut into more passes.
            request_id: a repeated call with the same id and content returns the same job; default: a new one.
            run_id: in place of a request_id: the same call in the same run (of a CI system, say) returns the same job.
            validate_only: check and fill in, start nothing.
            method_options: options of the method, of those that it has: warmup and cooldown (fractions of all steps),
                shape, selection, score_learning_rate, initial_scores, penalty, when.

        Raises:
            InvalidArgument: `violations` names each field with what was given and what is allowed.
        """
        spec = _spec.compression_spec(
            model=model,
            model_revision=model_revision,
            task=task,
            density=density,
            method=method,
            method_options=method_options,
            include=include,
            exclude=exclude,
            allow_density_miss=allow_density_miss,
            dataset={
                "hub_id": dataset,
                "hub_config": dataset_config,
                "train": _spec.file(train),
                "validation": _spec.file(validation),
                "text_column": text_column,
                "text_pair_column": text_pair_column,
                "label_column": label_column,
            },
            teacher=teacher,
            teacher_options={"revision": teacher_revision, "temperature": temperature, "alpha": alpha},
            seed=seed,
            training={
                "max_steps": max_steps,
                "epochs": epochs,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "weight_decay": weight_decay,
                "max_length": max_length,
                "accumulation_steps": accumulation_steps,
                "precision": precision,
                "train_embeddings": train_embeddings,
                "compile": compile,
                "gradient_checkpointing": gradient_checkpointing,
                "deterministic": deterministic,
                "evaluate_every": evaluate_every,
                "patience": patience,
                "keep_best": keep_best,
            },
        )
        policy = _spec.execution_policy(
            resources={"gpus": gpus, "cpus": cpus, "memory_bytes": memory_bytes},
            limits={
                "max_attempts": max_attempts,
                "priority": priority,
                "max_runtime": max_runtime,
                "max_queue_time": max_queue_time,
                "start_timeout": start_timeout,
                "checkpoint_interval": checkpoint_interval,
                "retention": retention,
                "allow_smaller_batch": allow_smaller_batch,
            },
        )
        request = job_pb2.CreateJobRequest(
            parent=self._parent,
            job=job_pb2.Job(display_name=display_name, spec=spec, policy=policy, labels=labels),
            validate_only=validate_only,
        )
        request.request_id = request_id or _spec.request_id(request, run_id)
        return _convert.job(self._transport.call(self._transport.jobs.CreateJob, request), self)

    def get(self, job: str | Job) -> Job:
        """The job as it is now."""
        return self._job(self._transport.jobs.GetJob, job_pb2.GetJobRequest(name=self._name(job)))

    def list(self, *, filter: str = "", order_by: str = "", limit: int | None = None) -> Iterator[Job]:
        """The project's jobs, at most `limit`; pages are fetched as they are needed.

        Args:
            filter: such as 'state = RUNNING AND (task = "squad" OR labels.team = "search")'; the fields are state,
                task, model, method, display_name, creator, priority, create_time, end_time and labels.KEY.
            order_by: create_time, state, task or model, with " desc" for descending; default: newest first.

        Raises:
            InvalidArgument: the filter or the order is malformed; says where.
        """
        request = job_pb2.ListJobsRequest(parent=self._parent, filter=filter, order_by=order_by)
        found = pages(self._transport, self._transport.jobs.ListJobs, request, min(PAGE, limit or PAGE))
        messages = (message for page in found for message in page.jobs)
        for message in itertools.islice(messages, limit):
            yield _convert.job(message, self)

    def watch(self, job: str | Job, *, after_sequence: int = 0) -> Iterator[JobUpdate]:
        """Each change of a job, until it has ended. Goes on after a cut where it was.

        Args:
            after_sequence: events up to it are left out.
        """
        for message in _watch.watch(self._transport, self._name(job), after_sequence):
            yield _convert.update(message, self)

    def wait(
        self, job: str | Job, timeout: float | None = None, on_progress: Callable[[Job], None] | None = None
    ) -> Job:
        """Waits until a job has SUCCEEDED and returns it.

        Args:
            timeout: seconds to wait; None: as long as it takes.
            on_progress: called with the job at once and at each change.

        Raises:
            JobFailed, JobCancelled: it ended otherwise.
            WaitTimeout: the time is up; the job goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        report = on_progress or (lambda job: None)
        current = self.get(job)
        report(current)
        try:
            if not current.state.is_terminal:
                for message in _watch.watch(self._transport, current.name, 0, deadline):
                    current = _convert.job(message.job, self)
                    report(current)
        except DeadlinePassed:
            raise WaitTimeout(current, timeout or 0) from None
        _raise_if_lost(current)
        return current

    def logs(self, job: str | Job, *, follow: bool = False) -> Iterator[bytes]:
        """The log of the current attempt, in pieces; with `follow`, until the job has ended."""
        return _watch.logs(self._transport, self._name(job), follow)

    def cancel(self, job: str | Job, reason: str = "", *, etag: str = "") -> Job:
        """Asks for cancellation; a job that is cancelled already stays so. With `etag`, Conflict if it has changed."""
        request = job_pb2.CancelJobRequest(name=self._name(job), reason=reason, etag=etag)
        return self._job(self._transport.jobs.CancelJob, request, repeatable=not etag)

    def retry(self, job: str | Job, *, from_scratch: bool = False, etag: str = "") -> Job:
        """Puts a FAILED or CANCELLED job back in the queue, to go on from its last checkpoint.

        Args:
            from_scratch: forget the checkpoints.
            etag: the job must still be at it.

        Raises:
            FailedPrecondition: the job is live, or SUCCEEDED.
            Conflict: it is no longer at `etag`.
        """
        request = job_pb2.RetryJobRequest(name=self._name(job), from_scratch=from_scratch, etag=etag)
        return self._job(self._transport.jobs.RetryJob, request, repeatable=False)

    def delete(self, job: str | Job, *, allow_missing: bool = False, etag: str = "") -> None:
        """Deletes a job that has ended, with logs and metrics; its artifact stays.

        Raises:
            FailedPrecondition: the job is live.
            Conflict: it is no longer at `etag`.
        """
        request = job_pb2.DeleteJobRequest(name=self._name(job), allow_missing=allow_missing, etag=etag)
        self._transport.call(self._transport.jobs.DeleteJob, request, repeatable=allow_missing)

    def events(self, job: str | Job) -> Iterator[JobEvent]:
        """The audit trail, oldest first."""
        request = job_pb2.ListJobEventsRequest(parent=self._name(job))
        for page in pages(self._transport, self._transport.jobs.ListJobEvents, request):
            yield from map(_convert.event, page.events)

    def attempts(self, job: str | Job) -> Iterator[Attempt]:
        """The attempts, oldest first."""
        request = job_pb2.ListAttemptsRequest(parent=self._name(job))
        for page in pages(self._transport, self._transport.jobs.ListAttempts, request):
            yield from map(_convert.attempt, page.attempts)

    def metrics(self, job: str | Job) -> Iterator[MetricPoint]:
        """The recorded values, in the order of their arrival."""
        request = job_pb2.ListMetricsRequest(parent=self._name(job))
        for page in pages(self._transport, self._transport.jobs.ListMetrics, request):
            yield from map(_convert.metric, page.points)

    def artifact(self, job: str | Job) -> Artifact:
        """The artifact of a job, or the one with that name (projects/P/artifacts/SHA256).

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has none, or none yet.
        """
        if isinstance(job, str) and is_artifact(job):
            name = job
        else:
            found = self.get(job)
            _raise_if_lost(found)
            if not found.artifact:
                text = f"job {found.id} is {found.state} and has no artifact yet: wait for it"
                raise FailedPrecondition(text, code="FAILED_PRECONDITION", reason="NO_ARTIFACT_YET")
            name = found.artifact
        request = artifact_pb2.GetArtifactRequest(name=name)
        return _convert.artifact(self._transport.call(self._transport.artifacts.GetArtifact, request))

    def download(
        self,
        job: str | Job | Artifact,
        directory: str | os.PathLike[str],
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Downloads the artifact of a job into a folder, which appears when all is there and verified.

        A download that broke off goes on where it was. If the folder holds the artifact already, it is verified and
        nothing is downloaded.

        Args:
            on_progress: called with the bytes there and the bytes in all.

        Returns:
            The folder.

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has no artifact, or none yet.
            DestinationNotEmpty: the folder holds something else.
            DownloadError: the artifact's paths are unsafe, its bytes are wrong, or the disk refuses them.
        """
        from mvprune import _download  # urllib is slow to import

        artifact = job if isinstance(job, Artifact) else self.artifact(job)
        return _download.download(self._transport, artifact, Path(directory), on_progress or (lambda done, total: None))

    @functools.cached_property
    def admin(self) -> Admin:
        """Tokens and projects."""
        from mvprune._admin import Admin  # few need it

        return Admin(self._transport)

    @property
    def _parent(self) -> str:
        return f"projects/{self.project}"

    def _name(self, job: str | Job) -> str:
        return job_name(job, self.project)

    def _job(self, method: Any, request: Any, *, repeatable: bool = True) -> Job:
        return _convert.job(self._transport.call(method, request, repeatable=repeatable), self)


def _raise_if_lost(job: Job) -> None:
    if job.state is JobState.FAILED:
        raise JobFailed(job)
    if job.state is JobState.CANCELLED:
        raise JobCancelled(job)
