"""docs/sweeps.md: every command and Python block, in order, against a real server whose workers train nothing."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import Tiny
from ..integration.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "sweeps.md"
STAND_IN = Path(__file__).with_name("sweep_stand_in")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 900  # many times what it takes on an idle machine


@pytest.fixture
def server(tmp_path: Path, tiny: Tiny) -> Iterator[Server]:
    """With models and data where the page has them."""
    shutil.copytree(tiny.models, tmp_path / "models")
    server = Server(tmp_path / "home")
    server.start({"PYTHONPATH": str(STAND_IN)}, models=tmp_path / "models", roots=tmp_path)
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
def test_every_block_runs(server: Server, tmp_path: Path, tiny: Tiny) -> None:
    walk = tmp_path / "walk"
    walk.mkdir()
    shutil.copy(tiny.train, walk / "train.jsonl")
    shutil.copy(tiny.validation, walk / "dev.tsv")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MVPRUNE_ADDRESS": server.address, "MVPRUNE_HOME": str(server.home)}
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 7

    def shell(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=walk, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}\n{server.log()[-3000:]}"
        return done.stdout

    printed = [
        shell(text if kind == "sh" else f"python - <<'END_OF_PYTHON'\n{text}\nEND_OF_PYTHON") for kind, text in blocks
    ]
    print(*printed, sep="\n---\n")  # seen if the test fails

    smallest = json.loads(shell("mvpctl sweep get smallest -o json"))
    densities = [point["target_density"] for point in json.loads(shell("mvpctl sweep points smallest -o json"))]
    assert smallest["recommendation"]["passed"]
    assert 1 < len(densities) <= 5, "it bisects"
    manifest = json.loads((walk / "small" / "manifest.json").read_text())
    assert manifest["metrics"]["delta/accuracy"] >= -0.01
    assert min(densities) < manifest["accounting"]["target_density"] < max(densities)

    compare = json.loads(shell("mvpctl sweep get compare -o json"))
    assert compare["counts"]["total"] == 10, "8 combinations, and two more"
    assert compare["counts"]["baselines"] == 2, "one for each seed"
    assert {point["method"] for point in compare["front"]} == {"movement"}
    assert len(list((walk / "front").iterdir())) >= 2
    rows = list(csv.reader((walk / "report" / "report.csv").open()))
    assert len(rows) > 10
    assert "<script" not in (walk / "report" / "report.html").read_text()
    assert "valid: 8 points" in "".join(printed)
    assert (walk / "best" / "manifest.json").exists()
    assert [line.split()[0] for line in shell("mvpctl sweep list").splitlines()[1:]] == [
        "from-file",
        "compare",
        "smallest",
    ]
