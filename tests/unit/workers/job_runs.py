"""Runs of the trainer's part of a job, in this process."""

from __future__ import annotations

from pathlib import Path

from mvprune.v1 import job_pb2
from mvprune_workers.events import TrainerEvent
from mvprune_workers.folders import Folders
from mvprune_workers.job import run_job


def folders(root: Path) -> Folders:
    """Folders of a job."""
    return Folders(*(root / name for name in ("out", "teacher", "beginning", "inputs", "checkpoint", "cache")))


def run(spec: job_pb2.CompressionSpec, root: Path, factor: int = 1, seconds: float = 600.0) -> list[TrainerEvent]:
    """Runs a job; the events that it reports."""
    events: list[TrainerEvent] = []
    run_job(spec, folders(root), "cpu", events.append, accumulation_factor=factor, checkpoint_seconds=seconds)
    return events
