"""The thread that uploads a finished artifact, as long as it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from mvprune_service.stores import open_store
from mvprune_service.stores.base import StoreUnavailable
from mvprune_service.stores.layout import publish
from mvprune_workers import backoff
from mvprune_workers.inbox import Fact, Inbox


class Publication:
    """Publishes `directory`: blobs, manifest and, last, the attempt's marker. Posts PUBLISH_ENDED.

    A store that is away is tried again for up to `limit` seconds. Repeating is harmless: blobs are named by content.
    """

    def __init__(
        self, store_url: str, directory: Path, attempt_uid: str, inbox: Inbox, say: Callable[[str], None], limit: float
    ) -> None:
        self._store_url = store_url
        self._directory = directory
        self._attempt_uid = attempt_uid
        self._inbox = inbox
        self._say = say
        self._limit = limit
        self._stopped = threading.Event()
        self.manifest_sha256 = ""  # set once everything is in the store
        self.error: Exception | None = None

    def start(self) -> None:
        """Starts uploading."""
        threading.Thread(target=self._run, name="publication", daemon=True).start()

    def stop(self) -> None:
        """No further try. One under way goes on."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            self.manifest_sha256 = self._publish()
        except Exception as error:
            self.error = error
        self._inbox.post(Fact.PUBLISH_ENDED)

    def _publish(self) -> str:
        deadline = time.monotonic() + self._limit
        for delay in backoff.delays(first=1.0, cap=30.0):
            try:
                return publish(open_store(self._store_url), self._directory, self._attempt_uid)
            except StoreUnavailable as error:
                if time.monotonic() + delay > deadline or self._stopped.is_set():
                    raise
                self._say(f"the artifact store cannot be used, trying again: {error}")
                self._stopped.wait(delay)
        raise AssertionError("delays are endless")
