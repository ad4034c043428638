"""A Ray dashboard of one node, whose jobs end at once with the answer of a node."""

from __future__ import annotations

import json
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mvprune_service.executors.node_probe import MARK

_NODE = {"node_id": "5e53", "node_ip": "10.0.0.7", "resources_total": {"CPU": 16.0, "GPU": 1.0, "memory": 2.0**36}}
_FOUND = {
    "python": "3.12.4",
    "torch": "2.9.0",
    "ray": "2.60.0",
    "mvprune": "99.0.1",
    "gpu_names": ["NVIDIA A10G"],
    "store": "",
    "server": "",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.endswith("/logs"):
            self._answer({"logs": f"Ray says something\n{MARK}{json.dumps(_FOUND)}\n"})
        elif self.path == "/api/jobs/":
            self._answer([])
        elif self.path.startswith("/api/v0/nodes"):
            self._answer({"data": {"result": {"result": [_NODE]}}})
        else:
            self._answer({"status": "SUCCEEDED", "driver_exit_code": 0, "message": ""})

    def do_POST(self) -> None:
        self._answer({})

    do_DELETE = do_POST

    def _answer(self, value: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@cache
def address() -> str:
    """Of one that runs until the end of the tests."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
