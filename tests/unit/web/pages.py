"""Folders that are served to browsers, whose pages post what they find."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and keeps what a page posts."""

    def __init__(self, *args: Any, found: Queue[Any], **named: Any) -> None:
        self._found = found
        super().__init__(*args, **named)

    def do_POST(self) -> None:
        self._found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Queue[Any]]]:
    """The address of a folder, and what is posted to it."""
    found: Queue[Any] = Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder), found=found))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", found
    finally:
        server.shutdown()
        server.server_close()


def posted(browser: str, folder: Path, profile: Path, seconds: float) -> Any:
    """What the page of a folder posts first, in a browser with a profile of its own."""
    with served(folder) as (url, found):
        command = [browser, *_OPTIONS, f"--user-data-dir={profile}", f"{url}/"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = found.get(timeout=seconds)
        finally:
            running.terminate()
            running.wait(timeout=30)
    return told
