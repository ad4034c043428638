"""Runs a claimed attempt, from fetching the trainer's inputs to reporting the outcome."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from google.protobuf.json_format import MessageToJson

from mvprune.artifact.history import HISTORY_FILE
from mvprune.common import tracing
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.base import BlobStore, StoreDamaged, StoreFull, StoreUnavailable
from mvprune_service.stores.layout import fetch, publish
from mvprune_workers import backoff
from mvprune_workers.channel import LeaseLost, Rejected, Unreachable, WorkerClient
from mvprune_workers.checkpoints import CheckpointUploader, restore
from mvprune_workers.classify import classify, disk_full, oom_kills
from mvprune_workers.event_queue import Event, EventQueue
from mvprune_workers.exits import TRAINER_STOPPED, ExitCode
from mvprune_workers.folders import Folders
from mvprune_workers.heartbeat import Heartbeat
from mvprune_workers.inputs import BadInput, base_of, fetch_all, fetch_beginning, inputs_of
from mvprune_workers.limits import Limits
from mvprune_workers.logs import LogFile
from mvprune_workers.position import read_position
from mvprune_workers.process import TrainerProcess
from mvprune_workers.report import TrainerReport
from mvprune_workers.reporter import Reporter
from mvprune_workers.settings import Settings
from mvprune_workers.transfer import Transfer

_DEFAULT_INTERVAL = 10.0
_CONFIRM_AGAIN = (
    0.5,
    1.0,
)  # seconds: the connection may have died during a suspension, so the first call after it may fail
_URGENT = (Event.LEASE_LOST, Event.STOPPED, Event.CANCELLED, Event.TRAINER_ENDED)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outcome:
    """An outcome to report, and the exit code after the report."""

    exit_code: ExitCode
    request: worker_pb2.CompleteAttemptRequest
    text: str


@dataclass(frozen=True)
class Attempt:
    """Runs a claimed attempt to its end. The caller kills the trainer afterwards, however `run` ends."""

    settings: Settings
    limits: Limits
    client: WorkerClient
    events: EventQueue
    log: LogFile
    trainer: TrainerProcess
    report: TrainerReport
    folders: Folders
    oom_kills_before: int | None = field(default_factory=oom_kills)

    def run(self, claim: worker_pb2.ClaimAttemptResponse) -> ExitCode:
        """Fetches teacher and checkpoint, trains, publishes, reports."""
        interval = claim.heartbeat_interval.ToTimedelta().total_seconds() or _DEFAULT_INTERVAL
        reporter = Reporter(
            self.client, self.events, self.log, self.report, claim.log_offset, self.limits.report_interval
        )
        reporter.start()
        with Heartbeat(self.client, self.events, lambda: self.report.progress, interval) as heartbeat:
            try:
                outcome = self._fetch(claim) or self._train(claim, heartbeat)
                self.log.say(outcome.text)
                reporter.finish(self.limits.stop if self._is(Event.STOPPED) else self.limits.flush)
                return self._complete(outcome)
            except LeaseLost as error:
                self.log.say(f"the lease is lost, nothing more is reported: {error}")
                return ExitCode.LEASE_LOST

    @tracing.span("fetch")
    def _fetch(self, claim: worker_pb2.ClaimAttemptResponse) -> Outcome | None:
        """Fetches the teacher's artifact or the baseline's metrics, the artifact that the job begins with, a
        checkpoint, and inputs that were sent or are in buckets.

        Returns an outcome only if that failed. More urgent events are handled by the next step.
        """
        teacher, inputs = claim.teacher_manifest_sha256, inputs_of(claim.spec)
        is_taught = bool(claim.spec.teacher.job)  # else only the metrics of that job are needed
        spec, mask = claim.spec, claim.spec.locked_mask.mask_from
        begins = {"mask_from": (mask.job, mask.artifact), "start_from": (spec.start_from, spec.start_artifact)}
        beginning = next(((option, *each) for option, each in begins.items() if each[1]), None)
        if not (teacher or beginning or inputs or claim.checkpoints):
            return None

        def work(store: BlobStore) -> None:
            if teacher and is_taught:
                self.log.say(f"fetching the teacher, artifact {teacher}")
                fetch(store, teacher, self.folders.teacher)
            elif teacher:
                self.log.say(f"fetching the baseline's metrics, artifact {teacher}")
                fetch(store, teacher, self.folders.teacher, only={HISTORY_FILE})
            if beginning is not None:
                self.log.say(f"fetching {beginning[0]}, artifact {beginning[2].rpartition('/')[2]}")
                fetch_beginning(*beginning, store, self.folders.beginning)
            if claim.checkpoints:
                restore(store, claim.checkpoints, self.folders.checkpoint, self.log.say)
            every = inputs + (base_of(self.folders.teacher) if teacher and is_taught else [])
            fetch_all(every, claim.uploads, store, Roots.from_environment(), self.folders, self.log.say)

        fetching = self._transfer(work, Event.FETCH_ENDED)
        if self.events.wait((*_URGENT, Event.FETCH_ENDED)) is not Event.FETCH_ENDED:
            fetching.stop()
        elif fetching.error is not None:
            if isinstance(fetching.error, BadInput) and fetching.error.lost:
                self._report_lost(fetching.error.lost)
            what = "The teacher's artifact" if is_taught else "The baseline's metrics"
            return _failed(_store_failure(fetching.error, job_pb2.Failure.TEACHER_FAILED, what))
        return None

    def _report_lost(self, chunks: Sequence[str]) -> None:
        """Lets the server look for chunks that the store has lost. Raises LeaseLost."""
        try:
            self.client.report_lost_chunks(chunks)
        except (Unreachable, Rejected) as error:  # the outcome matters more: the next attempt finds the same
            self.log.say(f"the missing parts could not be reported: {error}")

    def _train(self, claim: worker_pb2.ClaimAttemptResponse, heartbeat: Heartbeat) -> Outcome:
        """Lets the trainer do the job and uploads its checkpoints. Raises LeaseLost."""
        uploader = CheckpointUploader(
            self.client,
            self.settings.store,
            self.settings.attempt_uid,
            self.folders.checkpoint,
            self.report.checkpoints,
            claim.checkpoint_interval.ToTimedelta().total_seconds(),
            self.log.say,
        )
        uploader.start()
        try:
            if self.events.wait(_URGENT, 0) is None:
                self.trainer.send_job(_job_of(claim))
            return self._wait(heartbeat, uploader)
        finally:
            uploader.stop()

    def _wait(self, heartbeat: Heartbeat, uploader: CheckpointUploader) -> Outcome:
        """Waits for the end of training and publishing. Raises LeaseLost."""
        with tracing.span("train"):
            event = self.events.wait((*_URGENT, Event.RESULT))
        if event in (Event.TRAINER_ENDED, Event.RESULT):
            if self.report.result is None:
                uploader.finish(self.limits.checkpoint)
                return self._ended()
            published = self._publish(self.report.result, heartbeat)
            if published is not None:
                return published
        self._check_lease()
        stopped = self._is(Event.STOPPED)
        if stopped and not self._must_cancel(heartbeat):
            deadline = time.monotonic() + self.limits.checkpoint
            self._end_trainer(self.limits.checkpoint)
            self._check_lease()
            uploader.finish(max(0.0, deadline - time.monotonic()))
            return _preempted()
        self._end_trainer(self.limits.stop if stopped else heartbeat.grace)
        self._check_lease()
        return _cancelled()

    @tracing.span("upload")
    def _publish(self, artifact: Path, heartbeat: Heartbeat) -> Outcome | None:
        """Publishes the artifact. Returns None if a more urgent event came first."""
        self.report.progress = job_pb2.Progress(phase="uploading", density=self.report.progress.density)
        work = partial(
            publish,
            directory=artifact,
            attempt_uid=self.settings.attempt_uid,
            confirm=lambda: self._confirm(heartbeat),
        )
        publication = self._transfer(work, Event.PUBLISH_ENDED)
        event = self.events.wait((Event.LEASE_LOST, Event.STOPPED, Event.CANCELLED, Event.PUBLISH_ENDED))
        if event in (Event.STOPPED, Event.CANCELLED):
            # An upload that is nearly done may finish: a complete result takes precedence over a cancellation.
            publication.stop()
            grace = self.limits.stop if event is Event.STOPPED else heartbeat.grace
            self.events.wait((Event.LEASE_LOST, Event.PUBLISH_ENDED), grace)
        self._check_lease()
        if publication.result is not None:
            self.events.wait((Event.LEASE_LOST, Event.TRAINER_ENDED), self.limits.stop)  # it may still write to the log
            return _published(publication.result)
        if publication.error is not None and event is Event.PUBLISH_ENDED:
            return _failed(_store_failure(publication.error, job_pb2.Failure.ARTIFACT_CORRUPT, "The artifact"))
        return None

    def _confirm(self, heartbeat: Heartbeat) -> None:
        """Checks that this process still holds the lease, which may have expired while it was suspended.

        Without an answer the result is committed: the result of an attempt that is over is never used. Raises
        LeaseLost.
        """
        for delay in (*_CONFIRM_AGAIN, None):
            try:
                heartbeat.beat()
            except LeaseLost:
                self.events.post(Event.LEASE_LOST)
                raise
            except (Unreachable, Rejected):
                if delay is not None:
                    time.sleep(delay)
            else:
                return

    def _transfer(self, work: Callable[[BlobStore], _T], ended: Event) -> Transfer[_T]:
        transfer = Transfer(self.settings.store, work, ended, self.events, self.log.say, self.limits.transfer)
        transfer.start()
        return transfer

    @tracing.span("report")
    def _complete(self, outcome: Outcome) -> ExitCode:
        """Reports until acknowledged. Raises LeaseLost."""
        deadline = time.monotonic() + self.limits.complete
        for delay in backoff.delays():
            try:
                self.client.complete(outcome.request)
                return outcome.exit_code
            except Rejected as error:
                self.log.say(f"the outcome was refused: {error}")
                break
            except Unreachable as error:
                if time.monotonic() + delay > deadline or self.events.wait((Event.STOPPED,), delay):
                    self.log.say(f"the outcome could not be reported: {error}")
                    break
        # A published result needs no report: the control plane finds its marker.
        return outcome.exit_code if outcome.exit_code is ExitCode.PUBLISHED else ExitCode.UNREACHABLE

    def _end_trainer(self, grace: float) -> None:
        self.trainer.signal(signal.SIGTERM)
        ends = {Event.LEASE_LOST, Event.TRAINER_ENDED}
        self.events.wait(ends if self._is(Event.STOPPED) else ends | {Event.STOPPED}, grace)
        self.trainer.kill()

    def _must_cancel(self, heartbeat: Heartbeat) -> bool:
        """Whether the stop belongs to a cancellation. A last heartbeat asks: the directive may not have arrived."""
        with suppress(Unreachable, Rejected):
            return self._is(Event.CANCELLED) or heartbeat.beat(self.limits.stop)
        return False

    def _ended(self) -> Outcome:
        """The outcome of a trainer that ended without a result and was not stopped by the supervisor."""
        code = self.trainer.returncode or 0
        if self.report.failure is None and code == TRAINER_STOPPED:
            return _preempted()
        if self.report.failure is not None:
            return _failed(self.report.failure)
        position = read_position(self.folders.position)
        end = classify(code, self.oom_kills_before, oom_kills(), self.log.last_line(), position)
        return _failed(end.failure, killed=end.killed)

    def _check_lease(self) -> None:
        if self._is(Event.LEASE_LOST):
            raise LeaseLost("another attempt owns the job, or the job is gone")

    def _is(self, event: Event) -> bool:
        return self.events.wait((event,), 0) is not None


def _job_of(claim: worker_pb2.ClaimAttemptResponse) -> str:
    """The part of a claim that the trainer needs: not the chunks of uploads, of which there may be thousands."""
    job = worker_pb2.ClaimAttemptResponse()
    job.CopyFrom(claim)
    job.ClearField("uploads")
    return MessageToJson(job, preserving_proto_field_name=True, indent=None)


def _published(manifest_sha256: str) -> Outcome:
    request = worker_pb2.CompleteAttemptRequest(manifest_sha256=manifest_sha256)
    return Outcome(ExitCode.PUBLISHED, request, f"published the artifact {manifest_sha256}")


def _failed(
    failure: job_pb2.Failure,
    exit_code: ExitCode = ExitCode.FAILED,
    killed: worker_pb2.CompleteAttemptRequest.Killed | None = None,
) -> Outcome:
    request = worker_pb2.CompleteAttemptRequest(failure=failure, killed=killed)
    return Outcome(exit_code, request, f"{job_pb2.Failure.Reason.Name(failure.reason)}: {failure.message}")


def _preempted() -> Outcome:
    failure = job_pb2.Failure(reason=job_pb2.Failure.PREEMPTED, message="The worker received a signal to stop.")
    return _failed(failure, ExitCode.PREEMPTED)


def _cancelled() -> Outcome:
    request = worker_pb2.CompleteAttemptRequest(cancelled=worker_pb2.CompleteAttemptRequest.Cancelled())
    return Outcome(ExitCode.CANCELLED, request, "cancelled on request")


def _store_failure(error: Exception, corrupt: job_pb2.Failure.Reason, what: str) -> job_pb2.Failure:
    if isinstance(error, StoreUnavailable):
        problems = {StoreFull: "is full", StoreDamaged: "is damaged"}
        problem = problems.get(type(error), "could not be reached")
        message = f"The artifact store {problem}: {error}"
        return job_pb2.Failure(reason=job_pb2.Failure.STORE_UNAVAILABLE, message=message)
    if full := disk_full(error):
        return job_pb2.Failure(reason=job_pb2.Failure.DISK_FULL, message=full)
    if isinstance(error, BadInput):
        return job_pb2.Failure(reason=error.reason, message=str(error))
    if isinstance(error, ImportError):
        return job_pb2.Failure(reason=job_pb2.Failure.MISSING_DEPENDENCY, message=str(error))
    return job_pb2.Failure(reason=corrupt, message=f"{what} could not be moved from or to the store: {error}")
