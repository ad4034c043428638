"""The thread that sends logs and metrics. Each call is acknowledged and can be repeated."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from mvprune_workers import backoff
from mvprune_workers.channel import MAX_LOG_BYTES, MAX_METRIC_POINTS, LeaseLost, Rejected, Unreachable, WorkerClient
from mvprune_workers.event_queue import Event, EventQueue
from mvprune_workers.logs import LogFile
from mvprune_workers.report import TrainerReport


@dataclass
class Reporter:
    """Sends new logs and metrics every `interval` seconds, and the rest at the end. Posts LEASE_LOST.

    `base_offset`: bytes of the attempt's log that the control plane had received before this process started.
    """

    client: WorkerClient
    events: EventQueue
    log: LogFile
    report: TrainerReport
    base_offset: int
    interval: float

    def __post_init__(self) -> None:
        self._sent = 0  # log bytes acknowledged
        self._logs_refused = False
        self._closing = threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        """Starts sending."""
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Sends the rest, for up to `timeout` seconds. Anything that is not sent by then is lost."""
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        delays = backoff.delays()
        delay = self.interval
        while True:
            closing = self._closing.wait(delay)
            try:
                self._send_metrics()
                self._send_logs()
                if closing:
                    return
                delays, delay = backoff.delays(), self.interval
            except LeaseLost:
                self.events.post(Event.LEASE_LOST)
                return
            except Unreachable:
                delay = next(delays)
                if closing:
                    if time.monotonic() + delay > self._deadline:
                        return
                    time.sleep(delay)

    def _send_metrics(self) -> None:
        while batch := self.report.points(MAX_METRIC_POINTS):
            try:
                self.client.report_metrics(batch)
            except Rejected as error:
                self.log.say(f"{len(batch)} metric points were refused: {error}")
            self.report.drop_points(len(batch))

    def _send_logs(self) -> None:
        while not self._logs_refused and (data := self.log.read(self._sent, MAX_LOG_BYTES)):
            try:
                wanted = self.client.append_logs(self.base_offset + self._sent, data) - self.base_offset
            except Rejected:
                self._logs_refused = True
                return
            if wanted == self._sent:
                raise Unreachable("AppendLogs: the server took nothing")
            self._sent = min(max(0, wanted), self.log.size)
