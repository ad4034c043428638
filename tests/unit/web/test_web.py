"""The npm package answers in Node and in a browser as the sparse runtime does."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.documents.blocks import ROOT, blocks_of
from tests.unit.web.conftest import program
from tests.unit.web.pages import BROWSERS, posted, served

from mvprune import load
from mvprune_core.prediction import Predictor
from native import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Artifact = Callable[[str], Path]
HERE = Path(__file__).parent
TEXTS = ["good film .", "The capital, of france_is paris?? 日本 x²", "good film . " * 60, "bad"]
POSTS_WHAT_IS_LOGGED = """<script>
  const logged = [];
  console.log = (value) => {
    logged.push(value);
    if (typeof value === "object") fetch("found", { method: "POST", body: JSON.stringify(logged) });
  };
</script>"""
INPUTS: dict[str, list[dict[str, str]]] = {
    "sst2": [{"text": text} for text in TEXTS],
    "multi-label-classification": [{"text": text} for text in TEXTS],
    "ner": [{"text": text} for text in TEXTS],
    "squad": [{"question": "what is it ?", "context": text} for text in TEXTS],
    "reranking": [{"query": "what is it ?", "document": text} for text in TEXTS],
}


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
    browser = program(*BROWSERS)
    root = tmp_path / "site"
    root.mkdir()
    shutil.copy(HERE / "page.html", root / "index.html")
    shutil.copytree(package, root / "package")
    shutil.copytree(artifact("sst2"), root / "artifact")
    told = posted(browser, root, tmp_path / "profile", seconds=120)
    expected = Predictor.open(artifact("sst2"), runtime="sparse").predict([{"text": "good film ."}])[0]
    assert close(told.get("here"), expected), told
    assert close(told.get("worker"), expected), told


def test_the_page_of_the_documents_answers(package: Path, artifact: Artifact, tmp_path: Path) -> None:
    browser = program(*BROWSERS)
    (page,) = (block.text for block in blocks_of(ROOT / "docs" / "web.md") if block.language == "html")
    root = tmp_path / "site"
    shutil.copytree(package, root / "node_modules" / "mvprune")
    shutil.copytree(artifact("sst2"), root / "out")
    (root / "index.html").write_text(f"<!doctype html>{POSTS_WHAT_IS_LOGGED}{page}")
    *progress, answer = posted(browser, root, tmp_path / "profile", seconds=120)
    assert progress[-1] == 1
    assert answer.keys() == {"label", "score", "scores"}


def test_the_program_of_the_package_answers(package: Path, artifact: Artifact, tmp_path: Path) -> None:
    program_text = next(block.text for block in blocks_of(build.WEB / "README.md") if block.language == "js")
    placed = program_text.replace('"mvprune"', json.dumps(str(package / "mvprune.js")))
    placed = placed.replace("https://example.org/out", str(artifact("sst2")))
    file = tmp_path / "program.mjs"
    file.write_text(placed.replace("await model.predict", "export const answers = await model.predict"))
    ask_it = f"const {{ answers }} = await import({json.dumps(str(file))}); console.log(JSON.stringify(answers));"
    command = [program("node"), "--input-type=module", "-e", ask_it]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [answer.keys() for answer in json.loads(done.stdout)] == [{"label", "score", "scores"}]


def test_a_page_loads_little(package: Path) -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in package.iterdir()}
    for name in ("mvprune.wasm", "mvprune-relaxed.wasm"):
        assert sizes[name] + sizes["mvprune.js"] < 150_000
