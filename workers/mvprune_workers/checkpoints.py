"""Uploads the trainer's checkpoints to the store and restores them in a later attempt."""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mvprune.v1 import worker_pb2
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.checkpoints import fetch_checkpoint, put_checkpoint
from mvprune_service.stores.layout import ArtifactCorrupt
from mvprune_workers import backoff
from mvprune_workers.channel import Unreachable, WorkerClient
from mvprune_workers.classify import disk_full
from mvprune_workers.transfer import transfer


def restore(
    store: BlobStore, checkpoints: Iterable[worker_pb2.Checkpoint], folder: Path, say: Callable[[str], None]
) -> None:
    """Fetches the first complete one of `checkpoints` into `folder`, if there is one.

    Raises:
        StoreUnavailable: the store cannot be used.
        OSError: the disk is full.
    """
    for checkpoint in checkpoints:
        try:
            fetch_checkpoint(store, checkpoint.attempt_uid, checkpoint.step, checkpoint.manifest_sha256, folder)
        except (ArtifactCorrupt, OSError) as error:
            if disk_full(error):  # the checkpoint may be whole: another attempt may have room for it
                raise
            say(f"the checkpoint of step {checkpoint.step} cannot be used: {error}")
        else:
            say(f"fetched the checkpoint of step {checkpoint.step}, to resume from")
            return
    say("starting from scratch: there is no checkpoint")


@dataclass
class CheckpointUploader:
    """Uploads and commits the newest checkpoint in `folder`, every `interval` seconds at most.

    A checkpoint that cannot be uploaded or committed within `interval` seconds is given up. Training never waits.

    `steps` receives the step of each complete checkpoint, and None after the last one.
    """

    client: WorkerClient
    store_url: str
    attempt_uid: str
    folder: Path
    steps: queue.SimpleQueue[int | None]
    interval: float
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Starts waiting for checkpoints."""
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Uploads the newest checkpoint, even before its time, and ends. Waits up to `timeout` seconds."""
        self.steps.put(None)
        self._thread.join(timeout)
        self.stop()

    def stop(self) -> None:
        """Ends without waiting. A running upload continues and is not committed."""
        self._stopped.set()
        self.steps.put(None)

    def _run(self) -> None:
        newest: int | None = None
        due = time.monotonic() + self.interval
        while True:
            try:
                step = self.steps.get(timeout=None if newest is None else max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + self.interval
                self._keep(newest)
                newest = None
            else:
                if step is None:
                    break
                newest = step
        self._keep(newest)

    def _keep(self, step: int | None) -> None:
        if step is None or self._stopped.is_set():
            return
        aside = self.folder.with_name("uploading")
        try:
            # The trainer replaces files and never changes them, so links keep them as they are now.
            shutil.copytree(self.folder, aside, copy_function=os.link, ignore=shutil.ignore_patterns(".*"))
            work = partial(put_checkpoint, directory=aside, attempt_uid=self.attempt_uid, step=step)
            self._commit(step, transfer(self.store_url, work, self.say, self.interval, self._stopped))
        except Exception as error:
            self.say(f"the checkpoint of step {step} is given up: {error}")
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _commit(self, step: int, manifest_sha256: str) -> None:
        deadline = time.monotonic() + self.interval
        for delay in backoff.delays():
            if self._stopped.is_set():
                return
            try:
                self.client.commit_checkpoint(step, manifest_sha256)
            except Unreachable:
                if time.monotonic() + delay > deadline:
                    raise
                self._stopped.wait(delay)
            else:
                self.say(f"committed the checkpoint of step {step}")
                return
