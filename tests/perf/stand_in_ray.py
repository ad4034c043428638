"""Ray's HTTP interface for jobs, without Ray: a node with room for everything, and jobs that a function runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_NODE = {"node_id": "a", "node_ip": "127.0.0.1", "resources_total": {"CPU": 1e6, "memory": 2.0**50}}


class StandInRay:
    """Use it in a `with`. Jobs are RUNNING until the end."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, Any]] = {}
        self._launch: Callable[[dict[str, str]], None] = lambda _: None
        ray = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path.startswith("/api/v0/nodes"):
                    self._answer(200, {"data": {"result": {"result": [_NODE]}}})
                elif self.path == "/api/jobs/":
                    self._answer(200, [])
                elif (job := ray._jobs.get(self.path.rpartition("/")[2])) is not None:
                    self._answer(200, job)
                else:
                    self._answer(404, "the job does not exist")

            def do_POST(self) -> None:
                job = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
                if self.path == "/api/jobs/":
                    ray._jobs[job["submission_id"]] = {"status": "RUNNING"}
                    ray._launch(job["runtime_env"]["env_vars"])
                self._answer(200, {})

            def _answer(self, status: int, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def on_launch(self, work: Callable[[dict[str, str]], None], loop: asyncio.AbstractEventLoop) -> None:
        """From now on `work` is called on the event loop with the environment of each job that is submitted."""
        self._launch = lambda env: loop.call_soon_threadsafe(work, env) and None
