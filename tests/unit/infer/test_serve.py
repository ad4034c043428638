"""`mvpctl serve` on the library without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.waiting import PATIENCE, until

from mvprune import infer
from mvprune.cli import main

Artifact = Callable[[str], Path]

# mvpctl where the extras `infer` and `serve` alone are installed.
PROGRAM = """
import sys
absent = "boto3 datasets numpy pyarrow ray safetensors scipy sklearn sqlalchemy tokenizers torch transformers zstandard"
sys.modules.update(dict.fromkeys(absent.split()))
from mvprune.cli import main
sys.exit(main())
"""


@contextmanager
def serving(*options: str | Path) -> Iterator[tuple[dict[str, Any], httpx.Client, subprocess.Popen[str]]]:
    """What a server says first, and a client of it; it is ended well."""
    command = [sys.executable, "-c", PROGRAM, "serve", *options, "--address", "127.0.0.1:0", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            ready = json.loads(run.stdout.readline())  # type: ignore[union-attr]
            with httpx.Client(base_url=ready["url"], timeout=PATIENCE) as client:
                yield ready, client, run
        finally:
            run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE) == 0


@pytest.mark.parametrize("task", ["sst2", "squad", "embedding"])
def test_it_answers_without_torch(artifact: Artifact, task: str) -> None:
    with serving(artifact(task), "--threads", "1") as (ready, client, _), infer.load(artifact(task)) as model:
        assert (ready["engine"], ready["runtime"], ready["threads"], ready["workers"]) == ("native", "sparse", 1, 1)
        assert client.get("/").json() == {name: value for name, value in ready.items() if name != "url"}
        given = {field.name: "good film ." for field in model.fields if field.required}
        assert client.post("/predict", json=given).json() == model.predict([given])[0]
        if task == "embedding":
            answer = client.post("/embed", json={"inputs": "good film ."}).json()
            assert answer[0] == pytest.approx(model.predict([given])[0]["embedding"], abs=1e-6)
            wrong = client.post("/predict", json={"text": "a", "prompt_name": "document"})
            assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "prompt_name")


def processes_of(run: subprocess.Popen[str]) -> list[int]:
    return [int(one) for one in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]


def answered(client: httpx.Client) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = [one for family in families for one in family.samples if one.labels.get("path") == "/predict"]
    return sum(one.value for one in samples if one.name == "mvprune_serve_requests_total")


def test_workers_share_the_requests_and_add_up_what_they_count(artifact: Artifact) -> None:
    with serving(artifact("sst2"), "--workers", "2") as (ready, client, run):
        assert ready["workers"] == 2
        assert len(processes_of(run)) == 2
        for _ in range(20):
            with httpx.Client(base_url=ready["url"]) as another:  # each may come to another worker
                another.post("/predict", json={"text": "good film ."}).raise_for_status()
        until(lambda: answered(client) == 20)  # a request is counted once its answer is sent


def test_what_the_library_does_not_have_goes_to_torch(
    artifact: Artifact, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPRUNE_KERNEL", "off")
    assert main(["serve", str(artifact("sst2")), "--workers", "2"]) == 2
    said = capsys.readouterr().err
    assert "--workers must be 1 for a model that torch computes, got 2: the native library is turned off" in said
    command = [sys.executable, "-c", PROGRAM, "serve", artifact("sst2")]
    environment = os.environ | {"MVPRUNE_KERNEL": "off"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "pip install 'mvprune[runtime]'" in done.stderr
