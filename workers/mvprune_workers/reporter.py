"""The thread that sends logs and metrics. What it sends is acknowledged, so it may send anything twice."""

from __future__ import annotations

import threading
import time

from mvprune_workers import backoff
from mvprune_workers.channel import MAX_LOG_BYTES, MAX_METRIC_POINTS, LeaseLost, Rejected, Unreachable, WorkerClient
from mvprune_workers.event_queue import Event, EventQueue
from mvprune_workers.logs import LogFile
from mvprune_workers.report import TrainerReport


class Reporter:
    """Sends what is new every `interval` seconds, and all of it at the end. Posts LEASE_LOST.

    `base_offset`: bytes of the attempt's log that the control plane had before this process; ours follow them.
    """

    def __init__(
        self,
        client: WorkerClient,
        events: EventQueue,
        log: LogFile,
        report: TrainerReport,
        base_offset: int,
        interval: float,
    ) -> None:
        self._client = client
        self._events = events
        self._log = log
        self._report = report
        self._base = base_offset
        self._interval = interval
        self._sent = 0  # log bytes acknowledged
        self._logs_refused = False
        self._closing = threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        """Starts sending."""
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Sends all that is left, for up to `timeout` seconds; what cannot be sent by then is lost."""
        self._deadline = time.monotonic() + timeout
        self._closing.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        delays = backoff.delays()
        delay = self._interval
        while True:
            closing = self._closing.wait(delay)
            try:
                self._send_metrics()
                self._send_logs()
                if closing:
                    return
                delays, delay = backoff.delays(), self._interval
            except LeaseLost:
                self._events.post(Event.LEASE_LOST)
                return
            except Unreachable:
                delay = next(delays)
                if closing:
                    if time.monotonic() + delay > self._deadline:
                        return
                    time.sleep(delay)

    def _send_metrics(self) -> None:
        while batch := self._report.points(MAX_METRIC_POINTS):
            try:
                self._client.report_metrics(batch)
            except Rejected as error:
                self._log.say(f"{len(batch)} metric points were refused: {error}")
            self._report.drop_points(len(batch))

    def _send_logs(self) -> None:
        while not self._logs_refused and (data := self._log.read(self._sent, MAX_LOG_BYTES)):
            try:
                wanted = self._client.append_logs(self._base + self._sent, data) - self._base
            except Rejected:
                self._logs_refused = True
                return
            if wanted == self._sent:
                raise Unreachable("AppendLogs: the server took nothing")
            self._sent = min(max(0, wanted), self._log.size)
