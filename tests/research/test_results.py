"""`make results`: a server of its own runs the sweep of a file and reports it; a second call only reports it again."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.conftest import Tiny, server_path

from mvprune.cli.sweep.parser import create_parser
from mvprune.cli.sweep.submission import submission

ROOT = Path(__file__).parents[2]
SWEEPS = sorted((ROOT / "research" / "sweeps").glob("*.yaml"))
STAND_IN = ROOT / "tests" / "e2e" / "sweep_stand_in"  # a trainer that trains nothing


def results(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "research" / "results.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(STAND_IN)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


@pytest.mark.slow
def test_a_sweep_is_run_and_reported_and_a_second_call_only_reports(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "little.yaml"
    job = {
        "model": "tiny-bert",
        "task": "text-classification",
        "train": server_path(tiny.train),
        "validation": server_path(tiny.validation),
        "max_steps": 12,
        "teacher": "none",
        "baseline": "none",
        "sweep": {"density": [0.3]},
    }
    file.write_text(yaml.safe_dump(job))
    reports = tmp_path / "reports"
    where = ("--models", tiny.models, "--data", tiny.train.parent, "--folder", tmp_path / "server")
    done = results(*where, "--reports", reports, file)
    assert done.returncode == 0, done.stderr
    with (reports / "little" / "report.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [float(row["density"]) for row in rows] == [0.3]
    assert all(row["state"] == "SUCCEEDED" for row in rows)
    (reports / "little" / "report.html").unlink()
    again = results(*where, "--reports", reports, file)
    assert again.returncode == 0, again.stderr
    assert (reports / "little" / "report.html").exists()
    with (reports / "little" / "report.csv").open(newline="") as table:
        assert [row["job"] for row in csv.DictReader(table)] == [row["job"] for row in rows]


def test_without_folders_of_models_and_data_it_says_what_it_needs() -> None:
    refused = results()
    assert refused.returncode == 2
    assert "--models" in refused.stderr


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_the_sweeps_are_job_files_that_can_be_read(file: Path) -> None:
    found = submission(create_parser().parse_args(["-f", str(file)]))
    assert found.options["axes"] or found.options["strategy"]
