"""The npm package answers in Node and in a browser as the sparse runtime does."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
import pytest
from tests.unit.web.conftest import program

from mvprune import load
from mvprune_core.prediction import Predictor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Artifact = Callable[[str], Path]
HERE = Path(__file__).parent
TEXTS = ["good film .", "The capital, of france_is paris?? 日本 x²", "good film . " * 60, "bad"]
INPUTS: dict[str, list[dict[str, str]]] = {
    "sst2": [{"text": text} for text in TEXTS],
    "multi-label-classification": [{"text": text} for text in TEXTS],
    "ner": [{"text": text} for text in TEXTS],
    "squad": [{"question": "what is it ?", "context": text} for text in TEXTS],
    "reranking": [{"query": "what is it ?", "document": text} for text in TEXTS],
}


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
    found: Queue[Any] = Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder), found=found))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", found
    finally:
        server.shutdown()
        server.server_close()


def ask(package: Path, request: dict[str, Any]) -> dict[str, Any]:
    asked = package.parent / "request.json"
    asked.write_text(json.dumps(request))
    command = [program("node"), HERE / "answers.mjs", package / "mvprune.js", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def close(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return abs(float(found) - expected) < 1e-5 * max(1, abs(expected))
    return bool(found == expected)


@pytest.mark.parametrize("task", INPUTS)
def test_answers_are_those_of_the_sparse_runtime(package: Path, artifact: Artifact, task: str) -> None:
    found = ask(package, {"url": str(artifact(task)), "inputs": INPUTS[task]})
    expected = Predictor.open(artifact(task), runtime="sparse").predict(INPUTS[task])
    assert close(found["answers"], expected), (found, expected)
    assert close(found["alone"], expected[0])
    assert [field["name"] for field in found["facts"]["fields"]][: len(INPUTS[task][0])] == [*INPUTS[task][0]]


def test_vectors_are_those_of_the_sparse_runtime(package: Path, artifact: Artifact) -> None:
    right: Any = load(artifact("embedding"), runtime="sparse")
    for options, given in (
        ({}, {}),
        ({"promptName": "query", "dimensions": 5}, {"prompt_name": "query", "dimensions": 5}),
    ):
        found = ask(package, {"url": str(artifact("embedding")), "texts": TEXTS, "options": options})
        np.testing.assert_allclose(found["vectors"], right.encode(TEXTS, **given), atol=1e-5)


def test_an_artifact_comes_by_address(package: Path, artifact: Artifact) -> None:
    folder = artifact("sst2")
    with served(folder) as (url, _):
        found = ask(package, {"url": url, "inputs": INPUTS["sst2"]})
    assert found["answers"] == ask(package, {"url": str(folder), "inputs": INPUTS["sst2"]})["answers"]
    assert found["progress"]["loaded"] == found["progress"]["total"] > (folder / "weights.safetensors").stat().st_size


def test_what_is_wrong_is_an_error_with_a_text(package: Path, artifact: Artifact, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(artifact("sst2"), broken)
    (broken / "config.json").write_text("{}")
    with served(tmp_path) as (url, _):
        for request, wrong in [
            ({"url": f"{url}/none"}, "none/manifest.json: the server answers 404"),
            ({"url": f"{url}/broken"}, "config.json"),
            ({"url": str(artifact("sst2")), "inputs": [{"other": "a"}]}, "other"),
            ({"url": str(artifact("sst2")), "texts": ["a"]}, "makes no vectors"),
        ]:
            found = ask(package, request)
            assert found["isError"], found
            assert wrong in found["error"]


def test_a_browser_answers_in_a_page_and_in_a_worker(package: Path, artifact: Artifact, tmp_path: Path) -> None:
    browser = program("chromium", "chromium-browser", "google-chrome")
    root = tmp_path / "site"
    root.mkdir()
    shutil.copy(HERE / "page.html", root / "index.html")
    shutil.copytree(package, root / "package")
    shutil.copytree(artifact("sst2"), root / "artifact")
    with served(root) as (url, found):
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", "--remote-debugging-port=0", f"{url}/"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = found.get(timeout=120)
        finally:
            running.terminate()
            running.wait(timeout=30)
    expected = Predictor.open(artifact("sst2"), runtime="sparse").predict([{"text": "good film ."}])[0]
    assert close(told.get("here"), expected), told
    assert close(told.get("worker"), expected), told


def test_a_page_loads_little(package: Path) -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in package.iterdir()}
    for name in ("mvprune.wasm", "mvprune-relaxed.wasm"):
        assert sizes[name] + sizes["mvprune.js"] < 230_000
