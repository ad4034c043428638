"""The product as its users have it: a server on a Ray of its own, S3, mvpctl, and what lands in the folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mvprune
from mvprune.data.loading import load_files
from mvprune.data.tasks import get_task

from ..conftest import Tiny, server_path
from ..waiting import PATIENCE, until
from ..warm.python import warm_python

BIN = Path(sys.executable).parent


@dataclass
class Plane:
    """A server in a process of its own."""

    address: str
    tiny: Tiny
    folder: Path

    def ctl(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Runs mvpctl in a pipe."""
        command = [BIN / "mvpctl", *(str(word) for word in words)]
        environment = {**os.environ, "MVPRUNE_ADDRESS": self.address}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.folder)

    def submit(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Submits a short run of the tiny model on its own files."""
        return self.ctl(
            "submit", "--model", "tiny-bert", "--train", server_path(self.tiny.train),
            "--validation", server_path(self.tiny.validation),
            "--max-steps", 120, "--batch-size", 16, "--learning-rate", 5e-3, "--cpus", 1, *words,
        )  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, seaweedfs: Any) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("plane")
    status = folder / "home" / "server.json"
    command = [
        BIN / "mvprune-server", "--home", folder / "home", "--address", "127.0.0.1:0", "--worker-address",
        "127.0.0.1:0", "--store", f"{seaweedfs.url}/e2e", "--models", tiny.models, "--roots", tiny.train.parent,
        "--worker-python", warm_python(), "--drain-seconds", "0",
    ]  # fmt: skip
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **seaweedfs.env})
    try:
        until(lambda: status.exists() or server.poll() is not None, log.read_text)
        assert server.poll() is None, log.read_text()
        yield Plane(json.loads(status.read_text())["address"], tiny, folder)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0, log.read_text()
        assert "Traceback" not in log.read_text()


def test_from_submit_to_a_model_that_gives_the_reported_metric(plane: Plane) -> None:
    import torch

    target = plane.folder / "out"
    gates = ("--gate", "density<=0.11", "--gate", "latency_ratio>=0.001")
    done = plane.submit("--method", "movement", "--density", 0.1, *gates, "--download", target, "--timeout", 480)
    assert done.returncode == 0, done.stderr
    assert "keeps 10.0 %" in done.stdout
    manifest = json.loads((target / "manifest.json").read_text())
    assert f"latency_ratio>=0.001  {manifest['metrics']['latency_ratio']:.6g}" in done.stdout

    model = mvprune.load(target)
    counts = manifest["accounting"]
    kept = {layer["name"]: layer["nonzero"] for layer in manifest["layers"]}
    found = {name: int(torch.count_nonzero(value)) for name, value in model.named_parameters() if name in kept}
    assert found == kept
    assert sum(found.values()) == counts["kept_weights"]
    assert counts["sparse_bytes"] == (target / "weights.safetensors").stat().st_size
    total = sum(int(torch.count_nonzero(value)) for value in model.parameters())
    assert total == counts["total_nonzero"]

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    data = load_files(get_task("text-classification"), plane.tiny.train, plane.tiny.validation).validation
    with torch.inference_mode():
        logits = model(**tokenizer(data.texts, padding=True, return_tensors="pt")).logits
    accuracy = (logits.argmax(-1) == torch.tensor(data.labels)).double().mean().item()
    assert accuracy == pytest.approx(manifest["metrics"]["eval/accuracy"], abs=1e-9)
    assert manifest["metrics"]["dense/accuracy"] > 0.8

    again = plane.ctl("download", json.loads(plane.ctl("list", "-o", "json").stdout)[0]["name"], target)
    assert again.returncode == 0, again.stderr


def test_the_line_of_the_readme_is_accepted_and_says_what_is_missing(plane: Plane) -> None:
    line = ("submit", "--model", "bert-base-uncased", "--task", "squad", "--sparsity", "0.03")
    done = plane.ctl(*line, "--cpus", 1, "--wait", "--timeout", 480)
    assert "keeps 3.0 % of 84.9 M prunable weights (2.5 M)" in done.stdout
    assert done.returncode == 3, done.stdout + done.stderr
    assert "UNREACHABLE_HUB" in done.stderr
    assert "MVPRUNE_MODELS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--density", "0"), "density"),
        (("--density", "1.5"), "density"),
        (("--density=-1",), "density"),
        (("--density", "nan"), "density"),
        (("--density", "0.1", "--method", "magic"), "movement"),
        (("--density", "0.1", "--task", "sst3"), "sst2"),
        (("--density", "0.1", "--teacher", "job:none"), "jobs/none"),
        (("--density", "0.1", "--model", "server:/etc"), "server:/etc"),
    ],
)
def test_bad_input_ends_with_exit_code_2(plane: Plane, words: tuple[str, ...], said: str) -> None:
    done = plane.submit(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
