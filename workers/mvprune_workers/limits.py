"""Time limits of the supervisor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds."""

    call: float = 10.0  # one call
    claim: float = 300.0  # claiming: the control plane may be restarting
    transfer: float = 1800.0  # publishing the result, fetching teacher and checkpoint: the store may be unavailable
    flush: float = 30.0  # sending the rest of the logs
    complete: float = 600.0  # reporting the outcome
    report_interval: float = 1.0  # between batches of logs and metrics
    silent: float = 30.0  # a rank without a sign of life, until the log says so
    lost: float = 600.0  # a rank without a sign of life, until the attempt ends
    # Executors kill processes that have not ended 30 s after SIGTERM (Launch.grace_seconds):
    checkpoint: float = 15.0  # the trainer's last checkpoint: writing, uploading and committing it
    stop: float = 0.5  # each other step
