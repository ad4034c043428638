"""The client."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mvprune import _convert, _spec, _watch
from mvprune._exceptions import (
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    JobCancelled,
    JobFailed,
    WaitTimeout,
)
from mvprune._models import Artifact, Attempt, Job, JobEvent, JobState, JobUpdate, MetricPoint
from mvprune._transport import DeadlinePassed, Transport
from mvprune.v1 import artifact_pb2, job_pb2

DEFAULT_ADDRESS = "127.0.0.1:7070"
_PAGE = 500
_ARTIFACT = re.compile(r"projects/[^/]+/artifacts/[0-9a-f]{64}")
_JOB = re.compile(r"projects/[^/]+/jobs/[^/]+")


class Client:
    """Talks to a compression service.

        with Client() as client:
            job = client.submit(model="bert-base-uncased", task="sst2", density=0.03)
            job = job.wait(on_progress=lambda job: print(job.progress))
            job.download("out/")

    Wherever a job is asked for, its id, its full name (projects/P/jobs/J) or a Job will do. All methods may raise
    ServerUnreachable and RequestRefused. A client may be shared by threads.

    Args:
        address: host:port; default MVPRUNE_ADDRESS, else 127.0.0.1:7070.
        project: the project of jobs that are given by id alone.
        timeout: seconds that one call may take. Streams, waiting and downloads have no limit but their own.
    """

    def __init__(self, address: str | None = None, *, project: str = "default", timeout: float = 30.0) -> None:
        self.address = address or os.environ.get("MVPRUNE_ADDRESS") or DEFAULT_ADDRESS
        self.project = project
        self._transport = Transport(self.address, timeout)

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
        display_name: str = "",
        labels: Mapping[str, str] | None = None,
        request_id: str = "",
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
            request_id: a repeated call with the same id and content returns the same job; default: a new one.
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
        policy = _spec.execution_policy(gpus=gpus, cpus=cpus, memory_bytes=memory_bytes, max_attempts=max_attempts)
        request = job_pb2.CreateJobRequest(
            parent=self._parent,
            job=job_pb2.Job(display_name=display_name, spec=spec, policy=policy, labels=labels),
            request_id=request_id or secrets.token_hex(16),  # always one: what makes a repeated call harmless
            validate_only=validate_only,
        )
        return _convert.job(self._transport.call(self._transport.jobs.CreateJob, request), self)

    def get(self, job: str | Job) -> Job:
        """The job as it is now."""
        return self._job(self._transport.jobs.GetJob, job_pb2.GetJobRequest(name=self._name(job)))

    def list(self, *, limit: int | None = None) -> Iterator[Job]:
        """The project's jobs, newest first, at most `limit`; pages are fetched as they are needed."""
        request = job_pb2.ListJobsRequest(parent=self._parent)
        pages = self._pages(self._transport.jobs.ListJobs, request, min(_PAGE, limit or _PAGE))
        messages = (message for page in pages for message in page.jobs)
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

    def cancel(self, job: str | Job, reason: str = "") -> Job:
        """Asks for cancellation; a job that is cancelled already stays so."""
        return self._job(self._transport.jobs.CancelJob, job_pb2.CancelJobRequest(name=self._name(job), reason=reason))

    def retry(self, job: str | Job) -> Job:
        """Puts a FAILED or CANCELLED job back in the queue. Raises FailedPrecondition for others."""
        request = job_pb2.RetryJobRequest(name=self._name(job))
        return self._job(self._transport.jobs.RetryJob, request, repeatable=False)

    def delete(self, job: str | Job, *, allow_missing: bool = False) -> None:
        """Deletes a job that has ended, with logs and metrics; its artifact stays. FailedPrecondition if it is live."""
        request = job_pb2.DeleteJobRequest(name=self._name(job), allow_missing=allow_missing)
        self._transport.call(self._transport.jobs.DeleteJob, request, repeatable=allow_missing)

    def events(self, job: str | Job) -> Iterator[JobEvent]:
        """The audit trail, oldest first."""
        request = job_pb2.ListJobEventsRequest(parent=self._name(job))
        for page in self._pages(self._transport.jobs.ListJobEvents, request):
            yield from map(_convert.event, page.events)

    def attempts(self, job: str | Job) -> Iterator[Attempt]:
        """The attempts, oldest first."""
        request = job_pb2.ListAttemptsRequest(parent=self._name(job))
        for page in self._pages(self._transport.jobs.ListAttempts, request):
            yield from map(_convert.attempt, page.attempts)

    def metrics(self, job: str | Job) -> Iterator[MetricPoint]:
        """The recorded values, in the order of their arrival."""
        request = job_pb2.ListMetricsRequest(parent=self._name(job))
        for page in self._pages(self._transport.jobs.ListMetrics, request):
            yield from map(_convert.metric, page.points)

    def artifact(self, job: str | Job) -> Artifact:
        """The artifact of a job, or the one with that name (projects/P/artifacts/SHA256).

        Raises:
            JobFailed, JobCancelled, FailedPrecondition: the job has none, or none yet.
        """
        if isinstance(job, str) and _ARTIFACT.fullmatch(job):
            name = job
        else:
            found = self.get(job)
            _raise_if_lost(found)
            if not found.artifact:
                raise FailedPrecondition(
                    f"job {found.id} is {found.state} and has no artifact yet: wait for it",
                    code="FAILED_PRECONDITION",
                    reason="NO_ARTIFACT_YET",
                )
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

    @property
    def _parent(self) -> str:
        return f"projects/{self.project}"

    def _name(self, job: str | Job) -> str:
        if isinstance(job, Job):
            return job.name
        if _JOB.fullmatch(job):
            return job
        if not job or "/" in job:
            description = f"got {job!r}; allowed: a job's id or its name, projects/PROJECT/jobs/JOB"
            raise InvalidArgument(violations=[FieldViolation("job", description)])
        return f"{self._parent}/jobs/{job}"

    def _job(self, method: Any, request: Any, *, repeatable: bool = True) -> Job:
        return _convert.job(self._transport.call(method, request, repeatable=repeatable), self)

    def _pages(self, method: Any, request: Any, page_size: int = _PAGE) -> Iterator[Any]:
        request.page_size = page_size
        while True:
            page = self._transport.call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _raise_if_lost(job: Job) -> None:
    if job.state is JobState.FAILED:
        raise JobFailed(job)
    if job.state is JobState.CANCELLED:
        raise JobCancelled(job)
