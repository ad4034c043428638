"""A claimed attempt: from fetching the job's teacher to the acknowledged outcome."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from google.protobuf.json_format import MessageToJson

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import fetch, publish
from mvprune_workers import backoff
from mvprune_workers.channel import LeaseLost, Rejected, Unreachable, WorkerClient
from mvprune_workers.classify import classify, oom_kills
from mvprune_workers.exits import TRAINER_STOPPED, ExitCode
from mvprune_workers.heartbeat import Heartbeat
from mvprune_workers.inbox import Fact, Inbox
from mvprune_workers.limits import Limits
from mvprune_workers.logs import LogFile
from mvprune_workers.process import TrainerProcess
from mvprune_workers.report import TrainerReport
from mvprune_workers.reporter import Reporter
from mvprune_workers.settings import Settings
from mvprune_workers.transfer import Transfer

_DEFAULT_INTERVAL = 10.0
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outcome:
    """What to report, and the exit code once it is reported."""

    exit_code: ExitCode
    request: worker_pb2.CompleteAttemptRequest
    text: str


class Attempt:
    """Runs a claimed attempt to its end. The caller kills the trainer afterwards, however `run` ends.

    `teacher`: the folder in which the trainer expects the artifact of the teacher's job, if the job has one.
    """

    def __init__(
        self,
        settings: Settings,
        limits: Limits,
        client: WorkerClient,
        inbox: Inbox,
        log: LogFile,
        trainer: TrainerProcess,
        report: TrainerReport,
        teacher: Path,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._client = client
        self._inbox = inbox
        self._log = log
        self._trainer = trainer
        self._report = report
        self._teacher = teacher
        self._oom_kills = oom_kills()

    def run(self, claim: worker_pb2.ClaimAttemptResponse) -> ExitCode:
        """Fetches the teacher, trains, publishes, reports."""
        interval = claim.heartbeat_interval.ToTimedelta().total_seconds() or _DEFAULT_INTERVAL
        reporter = Reporter(
            self._client, self._inbox, self._log, self._report, claim.log_offset, self._limits.report_interval
        )
        reporter.start()
        with Heartbeat(self._client, self._inbox, lambda: self._report.progress, interval) as heartbeat:
            try:
                outcome = self._fetch_teacher(claim.teacher_manifest_sha256) or self._train(claim.spec, heartbeat)
                self._log.say(outcome.text)
                reporter.finish(self._limits.stop if self._is(Fact.STOPPED) else self._limits.flush)
                return self._complete(outcome)
            except LeaseLost as error:
                self._log.say(f"the lease is lost, nothing more is reported: {error}")
                return ExitCode.LEASE_LOST

    def _fetch_teacher(self, manifest_sha256: str) -> Outcome | None:
        """Puts the teacher's artifact where the trainer looks for it. An outcome only if that failed: what is more
        urgent is left to the next step."""
        if not manifest_sha256:
            return None
        self._log.say(f"fetching the teacher, artifact {manifest_sha256}")
        fetching = self._transfer(
            partial(fetch, manifest_sha256=manifest_sha256, directory=self._teacher), Fact.FETCH_ENDED
        )
        urgent = (Fact.LEASE_LOST, Fact.STOPPED, Fact.CANCELLED, Fact.TRAINER_ENDED)
        if self._inbox.wait((*urgent, Fact.FETCH_ENDED)) is not Fact.FETCH_ENDED:
            fetching.stop()
        elif fetching.error is not None:
            return _failed(_store_failure(fetching.error, job_pb2.Failure.TEACHER_FAILED, "The teacher's artifact"))
        return None

    def _train(self, spec: job_pb2.CompressionSpec, heartbeat: Heartbeat) -> Outcome:
        """Waits for the end of training and publishing. Raises LeaseLost."""
        self._trainer.send_job(MessageToJson(spec, preserving_proto_field_name=True, indent=None))
        fact = self._inbox.wait((Fact.LEASE_LOST, Fact.STOPPED, Fact.CANCELLED, Fact.TRAINER_ENDED))
        if fact is Fact.TRAINER_ENDED:
            if self._report.result is None:
                return self._ended()
            published = self._publish(self._report.result, heartbeat)
            if published is not None:
                return published
        self._check_lease()
        if self._is(Fact.STOPPED):
            self._end_trainer(self._limits.stop)
            return _cancelled() if self._must_cancel(heartbeat) else _preempted()
        self._end_trainer(heartbeat.grace)
        self._check_lease()
        return _cancelled()

    def _publish(self, artifact: Path, heartbeat: Heartbeat) -> Outcome | None:
        """None if something more urgent came before the artifact was published."""
        self._report.progress = job_pb2.Progress(phase="uploading", density=self._report.progress.density)
        work = partial(publish, directory=artifact, attempt_uid=self._settings.attempt_uid)
        publication = self._transfer(work, Fact.PUBLISH_ENDED)
        fact = self._inbox.wait((Fact.LEASE_LOST, Fact.STOPPED, Fact.CANCELLED, Fact.PUBLISH_ENDED))
        if fact in (Fact.STOPPED, Fact.CANCELLED):
            publication.stop()  # an upload that is about to end may: a whole result wins over a cancellation
            grace = self._limits.stop if fact is Fact.STOPPED else heartbeat.grace
            self._inbox.wait((Fact.LEASE_LOST, Fact.PUBLISH_ENDED), grace)
        self._check_lease()
        if publication.result is not None:
            return _published(publication.result)
        if publication.error is not None and fact is Fact.PUBLISH_ENDED:
            return _failed(_store_failure(publication.error, job_pb2.Failure.ARTIFACT_CORRUPT, "The artifact"))
        return None

    def _transfer(self, work: Callable[[BlobStore], _T], ended: Fact) -> Transfer[_T]:
        transfer = Transfer(self._settings.store, work, ended, self._inbox, self._log.say, self._limits.transfer)
        transfer.start()
        return transfer

    def _complete(self, outcome: Outcome) -> ExitCode:
        """Reports until acknowledged. Raises LeaseLost."""
        deadline = time.monotonic() + self._limits.complete
        for delay in backoff.delays():
            try:
                self._client.complete(outcome.request)
                return outcome.exit_code
            except Rejected as error:
                self._log.say(f"the outcome was refused: {error}")
                break
            except Unreachable as error:
                if time.monotonic() + delay > deadline or self._inbox.wait((Fact.STOPPED,), delay):
                    self._log.say(f"the outcome could not be reported: {error}")
                    break
        # A published result needs no report: the control plane finds its marker.
        return outcome.exit_code if outcome.exit_code is ExitCode.PUBLISHED else ExitCode.UNREACHABLE

    def _end_trainer(self, grace: float) -> None:
        self._trainer.signal(signal.SIGTERM)
        urgent = () if self._is(Fact.STOPPED) else (Fact.LEASE_LOST, Fact.STOPPED)
        self._inbox.wait((*urgent, Fact.TRAINER_ENDED), grace)
        self._trainer.kill()

    def _must_cancel(self, heartbeat: Heartbeat) -> bool:
        """Whether the stop is part of a cancellation: a last heartbeat asks, as the order may not have come yet."""
        with suppress(Unreachable, Rejected):
            return self._is(Fact.CANCELLED) or heartbeat.beat(self._limits.stop)
        return False

    def _ended(self) -> Outcome:
        """Why the trainer ended without a result, though nobody here wanted it to."""
        code = self._trainer.returncode or 0
        if self._report.failure is None and code == TRAINER_STOPPED:
            return _preempted()
        return _failed(self._report.failure or classify(code, self._oom_kills, oom_kills(), self._log.last_line()))

    def _check_lease(self) -> None:
        if self._is(Fact.LEASE_LOST):
            raise LeaseLost("another attempt owns the job, or the job is gone")

    def _is(self, fact: Fact) -> bool:
        return self._inbox.wait((fact,), 0) is not None


def _published(manifest_sha256: str) -> Outcome:
    request = worker_pb2.CompleteAttemptRequest(manifest_sha256=manifest_sha256)
    return Outcome(ExitCode.PUBLISHED, request, f"published the artifact {manifest_sha256}")


def _failed(failure: job_pb2.Failure, exit_code: ExitCode = ExitCode.FAILED) -> Outcome:
    request = worker_pb2.CompleteAttemptRequest(failure=failure)
    return Outcome(exit_code, request, f"{job_pb2.Failure.Reason.Name(failure.reason)}: {failure.message}")


def _preempted() -> Outcome:
    failure = job_pb2.Failure(reason=job_pb2.Failure.PREEMPTED, message="The worker was told to stop.")
    return _failed(failure, ExitCode.PREEMPTED)


def _cancelled() -> Outcome:
    request = worker_pb2.CompleteAttemptRequest(cancelled=worker_pb2.CompleteAttemptRequest.Cancelled())
    return Outcome(ExitCode.CANCELLED, request, "cancelled on request")


def _store_failure(error: Exception, corrupt: job_pb2.Failure.Reason, what: str) -> job_pb2.Failure:
    if isinstance(error, StoreUnavailable):
        return job_pb2.Failure(
            reason=job_pb2.Failure.STORE_UNAVAILABLE, message=f"The artifact store could not be reached: {error}"
        )
    if isinstance(error, ImportError):
        return job_pb2.Failure(reason=job_pb2.Failure.MISSING_DEPENDENCY, message=str(error))
    return job_pb2.Failure(reason=corrupt, message=f"{what} could not be moved from or to the store: {error}")
