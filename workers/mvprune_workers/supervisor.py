"""The supervisor: holds one attempt's lease while a trainer process does the work.

    claim ──▶ fetch teacher, mask and checkpoint ──▶ train ──▶ publish ──▶ send the logs ──▶ complete
      │                     │                    │          │
      └─────────────────────┴────────────────────┴──────────┴── lease lost, cancelled, stop signal: the trainer's
                                                                process group is killed first

The trainer is started before this process imports gRPC: a process that uses it must not fork, and so both import their
libraries at the same time. Neither the trainer nor the scratch folder outlives this process, however it ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune.common import tracing
from mvprune.common.addresses import exempt_this_machine
from mvprune_workers import backoff
from mvprune_workers.alive import Watch
from mvprune_workers.cache import trim
from mvprune_workers.event_queue import Event, EventQueue
from mvprune_workers.events import FailureEvent, SignEvent, TrainerEvent
from mvprune_workers.exits import ExitCode
from mvprune_workers.folders import Folders
from mvprune_workers.limits import Limits
from mvprune_workers.logs import LogFile, forward
from mvprune_workers.process import TrainerProcess
from mvprune_workers.report import TrainerReport
from mvprune_workers.scratch import Scratch
from mvprune_workers.settings import Settings, SettingsError, trainer_environment

if TYPE_CHECKING:
    from mvprune.v1 import worker_pb2
    from mvprune_workers.channel import WorkerClient

_SAY_AGAIN_SECONDS = 30.0
TRAINER = (sys.executable, "-P", "-m", "mvprune_workers.trainer")  # -P: no module comes from the working folder


class Supervisor:
    """Runs one attempt. `trainer` is the command to start, with the options of mvprune_workers.trainer; `limits` bounds
    every wait."""

    def __init__(self, settings: Settings, trainer: Sequence[str] = TRAINER, limits: Limits | None = None) -> None:
        self._settings = settings
        self._trainer = trainer
        self._limits = limits or Limits()
        self._runner_id = uuid.uuid4().hex
        self._events = EventQueue()

    def stop(self) -> None:
        """Ends the attempt early, as SIGTERM does. Safe in signal handlers."""
        self._events.post(Event.STOPPED)

    def run(self) -> ExitCode:
        """Runs the attempt to its end and cleans up."""
        settings = self._settings
        with Scratch(settings.scratch, f"{settings.attempt_uid}-{self._runner_id[:8]}") as scratch:
            log, report = LogFile(scratch / "attempt.log"), TrainerReport()
            folders = Folders(
                output=scratch / "artifact",
                teacher=scratch / "teacher",
                beginning=scratch / "beginning",
                inputs=scratch / "inputs",
                checkpoint=scratch / "checkpoint",
                cache=settings.cache,
            )
            forwarder = threading.Thread(target=forward, args=(log, sys.stdout.fileno()), daemon=True)
            forwarder.start()
            trainer = self._start_trainer(scratch / "tmp", folders, log, report)
            try:
                trim(settings.cache, settings.cache_bytes)
                return self._run(trainer, log, report, folders)
            finally:
                trainer.kill()
                log.finish()
                forwarder.join(self._limits.stop)

    def _run(self, trainer: TrainerProcess, log: LogFile, report: TrainerReport, folders: Folders) -> ExitCode:
        from mvprune_workers.attempt import Attempt
        from mvprune_workers.channel import WorkerClient

        settings, limits = self._settings, self._limits
        with WorkerClient(
            settings.target, settings.tls, settings.secret, settings.attempt, settings.fencing_token, limits.call
        ) as client:
            claim = self._claim(client, log)
            if isinstance(claim, ExitCode):
                return claim
            return Attempt(settings, limits, client, self._events, log, trainer, report, folders).run(claim)

    def _start_trainer(self, temporary: Path, folders: Folders, log: LogFile, report: TrainerReport) -> TrainerProcess:
        def give_up(message: str) -> None:
            report.take(FailureEvent("WORKER_LOST", message))
            trainer.kill()

        watch = Watch(log.say, give_up, self._limits.silent, self._limits.lost)

        def take(event: TrainerEvent) -> None:
            if isinstance(event, SignEvent):
                watch.take(event)
                return
            report.take(event)
            if report.result is not None:
                self._events.post(Event.RESULT)

        def end() -> None:
            watch.finish()
            self._events.post(Event.TRAINER_ENDED)

        threads = self._settings.threads
        temporary.mkdir()
        options = {
            **{f"--{name}": folder for name, folder in asdict(folders).items()},
            "--threads": threads,
            "--ranks": self._settings.ranks,
            "--parts": self._settings.parts,
            "--part": json.dumps(self._settings.part),
            "--device": "cuda" if self._settings.gpus else "cpu",
        }
        trainer = TrainerProcess(
            [*self._trainer, *(str(word) for option in options.items() for word in option)],
            trainer_environment(os.environ, temporary, threads, self._settings.scratch),
            temporary,
            on_output=log.append,
            on_event=take,
            on_end=end,
        )
        watch.start()
        return trainer

    @tracing.span("claim")
    def _claim(self, client: WorkerClient, log: LogFile) -> worker_pb2.ClaimAttemptResponse | ExitCode:
        """The claimed lease, or the exit code if there is none."""
        from mvprune_workers.channel import LeaseLost, Rejected, Unreachable, remedy

        target, say_again = self._settings.target, 0.0
        deadline = time.monotonic() + self._limits.claim
        for delay in backoff.delays():
            try:
                return client.claim(self._runner_id, socket.gethostname())
            except (LeaseLost, Rejected) as error:
                log.say(f"the claim was refused: {error}")
                return ExitCode.REFUSED
            except Unreachable as error:
                now = time.monotonic()
                if now + delay > deadline:
                    log.say(f"the server at {target} could not be reached: {error}{remedy(target)}")
                    return ExitCode.UNREACHABLE
                if now >= say_again:  # the watchdog shows the last line to the user
                    log.say(f"the server at {target} cannot be reached, trying again: {error}{remedy(target)}")
                    say_again = now + _SAY_AGAIN_SECONDS
            if self._events.wait((Event.STOPPED,), delay):
                return ExitCode.PREEMPTED
        raise AssertionError("delays are endless")


def main(trainer: Sequence[str] = TRAINER, limits: Limits | None = None) -> ExitCode:
    """The program: settings from the environment, SIGTERM and SIGINT end the attempt early."""
    exempt_this_machine(os.environ)
    try:
        settings = Settings.from_environment(os.environ)
        tracing.start("mvprune-worker")
    except (SettingsError, tracing.BadSetting) as error:
        print(f"mvprune_workers: {error}", file=sys.stderr)
        return ExitCode.USAGE
    supervisor = Supervisor(settings, trainer, limits)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    try:
        with tracing.span("attempt", settings.traceparent, attempt=settings.attempt):
            return supervisor.run()
    finally:
        tracing.stop()
