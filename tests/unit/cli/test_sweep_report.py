"""mvpctl sweep report: what is fetched, and what is said of what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.full_disk import full_disk
from tests.sparse_artifacts import make_artifact
from tests.unit.client.scripted_server import Fake, Mvpctl, always, refuse, serve_folder
from tests.unit.client.scripted_sweeps import PASSES, point, points, sweep

FILES = ["report.csv", "report.html", "report.json", "report.md"]


@pytest.fixture
def ended(fake: Fake, tmp_path: Path) -> str:
    """A sweep with two points of one method; the name of their artifact."""
    manifest = make_artifact(tmp_path / "artifact")
    serve_folder(fake, tmp_path / "artifact", manifest)
    name = f"projects/default/artifacts/{manifest.digest}"
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation=PASSES))
    fake.answers["ListSweepPoints"] = points(
        point(1, artifact=name, optimal=True), point(2, artifact=name, cell={"density": 0.05, "seed": 0})
    )
    return name


@pytest.mark.usefixtures("ended")
def test_the_report_is_written_and_written_again(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    for _ in range(2):
        outcome = mvpctl("sweep", "report", "s1", str(folder))
        assert (outcome.code, outcome.err) == (0, "")
        assert sorted(path.name for path in folder.iterdir()) == FILES
    assert set(outcome.out.splitlines()[-4:]) == {str(folder / name) for name in FILES}
    assert {request.path for request in fake.requests["ReadFile"]} > {"manifest.json", "weights.safetensors"}
    assert "text" in json.loads((folder / "report.json").read_text())["recommendation"]


@pytest.mark.usefixtures("ended")
def test_a_full_disk_names_the_folder(mvpctl: Mvpctl, tmp_path: Path) -> None:
    with full_disk(12_000):
        outcome = mvpctl("sweep", "report", "s1", str(tmp_path / "report"), "--no-masks", "--quiet")
    assert (outcome.code, outcome.err) == (1, f"error: {tmp_path / 'report'}: File too large\n")


@pytest.mark.usefixtures("ended")
def test_without_masks_only_a_manifest_is_fetched(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    outcome = mvpctl("sweep", "report", "s1", str(tmp_path / "report"), "--no-masks", "--quiet")
    assert outcome.code == 0, outcome.err
    assert {request.path for request in fake.requests["ReadFile"]} == {"manifest.json"}


@pytest.mark.usefixtures("ended")
def test_an_artifact_that_is_deleted_is_left_out(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    def gone(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, grpc.StatusCode.NOT_FOUND, "there is no such artifact")

    fake.answers["GetArtifact"] = gone
    outcome = mvpctl("sweep", "report", "s1", str(tmp_path / "report"))
    note = "note: the artifact of point 2 is deleted: its layers and masks are left out\n"
    assert (outcome.code, outcome.err) == (0, note)
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.usefixtures("ended")
def test_without_numpy_masks_are_left_out(
    fake: Fake, mvpctl: Mvpctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mvprune.cli.sweep.report.find_spec", lambda name: None)
    outcome = mvpctl("sweep", "report", "s1", str(tmp_path / "report"))
    assert outcome.err == "note: the overlap of masks is left out: it needs pip install 'mvprune[runtime]'\n"
    assert {request.path for request in fake.requests["ReadFile"]} == {"manifest.json"}
