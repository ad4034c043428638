"""Jobs that read the artifact of another one, in this process: as their teacher or as their mask."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file
from tests.unit.workers.job_runs import folders, run

from mvprune.artifact import read_manifest
from mvprune.data import held_out
from mvprune.v1 import job_pb2
from mvprune_core import CompressionError, Reason
from mvprune_workers.events import ProgressEvent

from ...conftest import server_path


@pytest.mark.parametrize(
    ("given", "density", "recorded"),
    [
        (None, 0.25, {"temperature": 2.0, "alpha": 0.9, "hidden_states": 0.0}),
        ({"alpha": 0.5}, 0.25, {"temperature": 2.0, "alpha": 0.5, "hidden_states": 0.0}),
        ({"none": True}, 0.25, {"none": True}),
        (None, 1.0, {"none": True}),
    ],
)
def test_the_dense_baseline_teaches_unless_told_otherwise(
    spec: job_pb2.CompressionSpec,
    tmp_path: Path,
    given: dict[str, Any] | None,
    density: float,
    recorded: dict[str, Any],
) -> None:
    spec.target_density = density
    if given is not None:
        spec.teacher.CopyFrom(job_pb2.Teacher(**given))
    events = run(spec, tmp_path)
    assert read_manifest(folders(tmp_path).output).spec["teacher"] == recorded
    phases = {event.phase for event in events if isinstance(event, ProgressEvent)}
    assert ("teaching" in phases) == ("none" not in recorded)


@pytest.mark.slow
def test_a_teacher_that_is_a_delta(spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any) -> None:
    spec.delta, spec.target_density = True, 1.0
    run(spec, tmp_path / "first")
    spec.target_density, spec.teacher.job = 0.5, "projects/p/jobs/t"
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).teacher)
    run(spec, tmp_path)
    assert read_manifest(folders(tmp_path).output).spec["teacher"]["job"] == spec.teacher.job


@pytest.mark.slow
def test_a_delta_teacher_without_its_base(
    spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "models" / "tiny-bert"
    shutil.copytree(tiny.model, other)
    monkeypatch.setenv("MVPRUNE_MODELS", str(other.parent))
    spec.delta, spec.target_density = True, 1.0
    run(spec, tmp_path / "first")
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).teacher)
    spec.teacher.job = "projects/p/jobs/t"
    tensors = load_file(other / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][3, 4] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(CompressionError, match=r"must have the SHA-256 [0-9a-f]{64}; give the same model") as caught:
        run(spec, tmp_path)
    assert caught.value.reason == Reason.INVALID_MODEL


@pytest.mark.slow
def test_a_teacher_without_some_heads_and_units(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    spec.target_density, spec.structure = 0.5, job_pb2.CompressionSpec.UNITS
    run(spec, tmp_path / "first")
    spec.ClearField("structure")
    spec.teacher.job = "projects/p/jobs/t"
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).teacher)
    run(spec, tmp_path)
    assert read_manifest(folders(tmp_path).output).spec["teacher"]["job"] == spec.teacher.job


@pytest.mark.slow
def test_the_mask_of_another_job_is_recorded_with_its_digest(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    run(spec, tmp_path / "first")
    before = read_manifest(folders(tmp_path / "first").output)
    shutil.copytree(folders(tmp_path / "first").output, folders(tmp_path).beginning)
    job, artifact = "projects/p/jobs/first", f"projects/p/artifacts/{'ab' * 32}"
    spec.ClearField("target_density")
    spec.locked_mask.mask_from.job, spec.locked_mask.mask_from.artifact = job, artifact
    run(spec, tmp_path)
    manifest = read_manifest(folders(tmp_path).output)
    assert [layer.nonzero for layer in manifest.layers] == [layer.nonzero for layer in before.layers]
    assert manifest.spec["locked_mask"]["mask_from"] == {"job": job, "artifact": artifact}
    recorded = dict(manifest.spec["mask_from"])
    assert len(recorded.pop("sha256")) == 64
    assert recorded == {"model": job, "revision": ""}
    assert manifest.spec["target_density"] == manifest.accounting.target_density == before.accounting.density


@pytest.mark.slow
def test_the_folder_of_an_artifact_is_a_mask(
    spec: job_pb2.CompressionSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spec, tmp_path / "first")
    artifact = folders(tmp_path / "first").output
    spec.ClearField("target_density")
    spec.locked_mask.mask_from.model = server_path(artifact)
    monkeypatch.setenv("MVPRUNE_ROOTS", os.pathsep.join([os.environ["MVPRUNE_ROOTS"], str(tmp_path)]))
    run(spec, tmp_path)
    before, after = read_manifest(artifact), read_manifest(folders(tmp_path).output)
    assert [layer.nonzero for layer in after.layers] == [layer.nonzero for layer in before.layers]
    assert after.spec["mask_from"]["model"] == str(artifact)


@pytest.mark.slow
def test_a_test_file_or_a_part_of_the_validation_file_is_measured(
    spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, *rows = tiny.validation.read_text().splitlines(keepends=True)
    file = tiny.train.with_name(f"{tmp_path.name}.tsv")
    file.write_text("".join([header, *rows[:20]]))
    spec.dataset.test = server_path(file)
    run(spec, tmp_path / "file")
    manifest = read_manifest(folders(tmp_path / "file").output)
    assert manifest.spec["dataset"]["test"] == server_path(file)
    assert {"test/accuracy", "test_dense/accuracy", "test_delta_low/accuracy"} <= manifest.metrics.keys()

    spec.dataset.test, spec.dataset.hold_out = "", True
    monkeypatch.setattr(held_out, "HELD_OUT_FROM", len(rows))
    run(spec, tmp_path / "part")
    held = read_manifest(folders(tmp_path / "part").output)
    assert held.dataset.validation_rows == len(rows) // 2 == manifest.dataset.validation_rows // 2
    assert "test_delta_high/accuracy" in held.metrics
    assert any("32 of 64 validation examples are held out" in note for note in held.notes)
