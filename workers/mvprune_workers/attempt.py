"""A claimed attempt: from sending the job to the trainer to the acknowledged outcome."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from google.protobuf.json_format import MessageToJson

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.base import StoreUnavailable
from mvprune_workers import backoff
from mvprune_workers.channel import LeaseLost, Rejected, Unreachable, WorkerClient
from mvprune_workers.classify import classify, oom_kills
from mvprune_workers.exits import ExitCode
from mvprune_workers.heartbeat import Heartbeat
from mvprune_workers.inbox import Fact, Inbox
from mvprune_workers.limits import Limits
from mvprune_workers.logs import LogFile
from mvprune_workers.process import TrainerProcess
from mvprune_workers.publish import Publication
from mvprune_workers.report import TrainerReport
from mvprune_workers.reporter import Reporter
from mvprune_workers.settings import Settings

_DEFAULT_INTERVAL = 10.0


@dataclass(frozen=True)
class Outcome:
    """What to report, and the exit code once it is reported."""

    exit_code: ExitCode
    request: worker_pb2.CompleteAttemptRequest
    text: str


class Attempt:
    """Runs a claimed attempt to its end. The caller kills the trainer afterwards, however `run` ends."""

    def __init__(
        self,
        settings: Settings,
        limits: Limits,
        client: WorkerClient,
        inbox: Inbox,
        log: LogFile,
        trainer: TrainerProcess,
        report: TrainerReport,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._client = client
        self._inbox = inbox
        self._log = log
        self._trainer = trainer
        self._report = report
        self._oom_kills = oom_kills()

    def run(self, claim: worker_pb2.ClaimAttemptResponse) -> ExitCode:
        """Trains, publishes, reports."""
        interval = claim.heartbeat_interval.ToTimedelta().total_seconds() or _DEFAULT_INTERVAL
        reporter = Reporter(
            self._client, self._inbox, self._log, self._report, claim.log_offset, self._limits.report_interval
        )
        reporter.start()
        with Heartbeat(self._client, self._inbox, lambda: self._report.progress, interval) as heartbeat:
            self._trainer.send_job(MessageToJson(claim.spec, preserving_proto_field_name=True, indent=None))
            try:
                outcome = self._outcome(heartbeat)
                self._log.say(outcome.text)
                reporter.finish(self._limits.stop if self._is(Fact.STOPPED) else self._limits.flush)
                return self._complete(outcome)
            except LeaseLost as error:
                self._log.say(f"the lease is lost, nothing more is reported: {error}")
                return ExitCode.LEASE_LOST

    def _outcome(self, heartbeat: Heartbeat) -> Outcome:
        """Waits for the end of training and publishing. Raises LeaseLost."""
        fact = self._inbox.wait((Fact.LEASE_LOST, Fact.STOPPED, Fact.CANCELLED, Fact.TRAINER_ENDED))
        if fact is Fact.TRAINER_ENDED:
            if self._report.result is None:
                return _failed(self._report.failure or self._classify())
            published = self._publish(heartbeat)
            if published is not None:
                return published
        self._check_lease()
        if self._is(Fact.STOPPED):
            self._end_trainer(self._limits.stop)
            return _cancelled() if self._must_cancel(heartbeat) else _preempted()
        self._end_trainer(heartbeat.grace)
        self._check_lease()
        return _cancelled()

    def _publish(self, heartbeat: Heartbeat) -> Outcome | None:
        """None if something more urgent came before the artifact was published."""
        assert self._report.result is not None  # noqa: S101 - the caller looked
        self._report.progress = job_pb2.Progress(phase="uploading", density=self._report.progress.density)
        publication = Publication(
            self._settings.store,
            self._report.result,
            self._settings.attempt_uid,
            self._inbox,
            self._log.say,
            self._limits.publish,
        )
        publication.start()
        fact = self._inbox.wait((Fact.LEASE_LOST, Fact.STOPPED, Fact.CANCELLED, Fact.PUBLISH_ENDED))
        if fact in (Fact.STOPPED, Fact.CANCELLED):
            publication.stop()  # an upload that is about to end may: a whole result wins over a cancellation
            grace = self._limits.stop if fact is Fact.STOPPED else heartbeat.grace
            self._inbox.wait((Fact.LEASE_LOST, Fact.PUBLISH_ENDED), grace)
        self._check_lease()
        if publication.manifest_sha256:
            return _published(publication.manifest_sha256)
        if publication.error is not None and fact is Fact.PUBLISH_ENDED:
            return _failed(_publish_failure(publication.error))
        return None

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

    def _classify(self) -> job_pb2.Failure:
        code = self._trainer.returncode
        return classify(0 if code is None else code, self._oom_kills, oom_kills(), self._log.last_line())

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


def _publish_failure(error: Exception) -> job_pb2.Failure:
    if isinstance(error, StoreUnavailable):
        return job_pb2.Failure(
            reason=job_pb2.Failure.STORE_UNAVAILABLE, message=f"The artifact store could not be reached: {error}"
        )
    if isinstance(error, ImportError):
        return job_pb2.Failure(reason=job_pb2.Failure.MISSING_DEPENDENCY, message=str(error))
    return job_pb2.Failure(
        reason=job_pb2.Failure.ARTIFACT_CORRUPT, message=f"The artifact could not be stored: {error}"
    )
