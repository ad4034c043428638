"""The nodes of a Ray cluster, with those that its autoscaler may add."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from mvprune_service.config import Settings
from mvprune_service.executors import open_executor
from mvprune_service.executors.base import ExecutorNotOpened, Node
from mvprune_service.executors.ray_jobs import NodeType, RayExecutor

GIB = 2**30
HEAD = {"CPU": 0.0, "memory": 4.0 * GIB}
GPU = {"CPU": 16.0, "GPU": 1.0, "memory": 63.0 * GIB, "mvprune-gpu": 1.0}
TYPES = "mvprune-cpu:2:8:0:16106127360,mvprune-gpu:3:16:1:67645734912"


class _Dashboard(BaseHTTPRequestHandler):
    nodes: ClassVar[list[dict[str, float]]] = []

    def do_GET(self) -> None:
        answer = {
            "data": {
                "result": {
                    "result": [{"node_id": "a", "node_ip": "10.0.0.1", "resources_total": each} for each in self.nodes]
                }
            }
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def dashboard() -> Iterator[type[_Dashboard]]:
    """One whose nodes a test sets: a real autoscaler has machines to add."""
    handler = type("Dashboard", (_Dashboard,), {"nodes": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        handler.address = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


def test_nodes_that_may_be_added_count_until_they_are_there(dashboard: Any) -> None:
    types = tuple(map(NodeType.parse, TYPES.split(",")))
    executor = RayExecutor(dashboard.address, node_types=types)
    dashboard.nodes = [HEAD]
    cpu, gpu = Node(8, 0, 15 * GIB, absent="mvprune-cpu"), Node(16, 1, 63 * GIB, absent="mvprune-gpu")
    assert sorted(executor.capacity().nodes, key=str) == sorted([cpu, cpu, gpu, gpu, gpu], key=str)
    dashboard.nodes = [HEAD, GPU, GPU]
    assert executor.capacity().gpus == 3, "two are there, one may be added"
    assert [node.absent for node in executor.capacity().nodes if node.gpus] == ["", "", "mvprune-gpu"]
    dashboard.nodes = [HEAD, GPU, GPU, GPU, GPU]
    assert executor.capacity().gpus == 4, "one more than was said is there"
    assert RayExecutor(dashboard.address).capacity().cpus == 64


@pytest.mark.parametrize("text", ["", "gpu", "gpu:3:16:1", "gpu:-1:16:1:0", "gpu:1:x:1:0", "a b:1:1:1:1"])
def test_a_node_type_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be RESOURCE:NODES:CPUS:GPUS:MEMORY_BYTES, such as") as refused:
        NodeType.parse(text)
    assert f"got {text!r}" in str(refused.value)


def test_settings_name_the_option(tmp_path: Path) -> None:
    bad = Settings(home=tmp_path, ray_address="http://127.0.0.1:1", ray_node_types="gpu,cpu")  # type: ignore[arg-type]
    assert bad.ray_node_types == ("gpu", "cpu")
    with pytest.raises(ExecutorNotOpened, match=r"--ray-node-types must be .*, got 'gpu'"):
        open_executor(bad, lambda: False)
    without = Settings(home=tmp_path, ray_node_types=(TYPES,))
    with pytest.raises(ExecutorNotOpened, match="--ray-node-types needs --ray-address"):
        open_executor(without, lambda: False)
