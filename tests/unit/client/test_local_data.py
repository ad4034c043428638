"""Client: data files of this machine are read as those of their task before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.client.scripted_server import Fake, echo
from tests.unit.client.scripted_uploads import Uploads

import mvprune
from mvprune import Client
from mvprune.v1 import job_pb2, sweep_pb2


@pytest.fixture
def uploads(fake: Fake) -> Uploads:
    def create(request: job_pb2.CreateJobRequest, context: grpc.ServicerContext) -> job_pb2.Job:
        job = echo(request, context)
        if request.validate_only:
            job.notes.extend(["train: a.csv is checked when it has been sent", "something else"])
        return job

    def sweep(request: sweep_pb2.CreateSweepRequest, context: grpc.ServicerContext) -> sweep_pb2.Sweep:
        return sweep_pb2.Sweep(
            name=f"{request.parent}/sweeps/s", notes=["validation: b.csv is checked when it has been sent"]
        )

    fake.answers |= {"CreateJob": create, "CreateSweep": sweep}
    return Uploads(fake)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "a.csv").write_text("text,label\ngood,1\nbad,0\n")
    (tmp_path / "b.csv").write_text("text,label\nfine,1\n")
    return {"model": "tiny", "density": 0.5, "train": tmp_path / "a.csv", "validation": tmp_path / "b.csv"}


def test_a_bad_row_is_refused_before_the_server_is_asked(
    fake: Fake, client: Client, uploads: Uploads, files: dict[str, Any]
) -> None:
    files["validation"].write_text("text,label\nfine,2\n")
    for validate_only in (True, False):
        with pytest.raises(mvprune.InvalidArgument) as caught:
            client.submit(**files, validate_only=validate_only)
        ((field, text),) = caught.value.violations
        assert field == "job.spec.dataset.validation"
        assert "b.csv, line 2: the label must be one of 0, 1" in text
    files["validation"].write_text("text,label\nfine,1\n")
    assert client.submit(**files).spec.dataset is not None
    assert len(fake.requests["CreateJob"]) == 2  # the trial, and the job


def test_a_test_file_that_is_the_validation_file_is_refused(
    client: Client, uploads: Uploads, files: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "copy.csv").write_bytes(files["validation"].read_bytes())
    for test in (files["validation"], tmp_path / "copy.csv"):
        with pytest.raises(mvprune.InvalidArgument) as caught:
            client.submit(**files, test=test)
        ((field, text),) = caught.value.violations
        assert field == "job.spec.dataset.test"
        assert "must have other examples than the validation file, got the same; give examples that" in text
    (tmp_path / "copy.csv").write_text("text,label\npoor,0\n")
    sent = client.submit(**files, test=tmp_path / "copy.csv").spec.dataset
    assert sent is not None
    assert sent.test.endswith("/copy.csv")


def test_the_answer_has_the_notes_on_the_data_in_place_of_those_of_a_server_that_lacks_it(
    client: Client, uploads: Uploads, files: dict[str, Any]
) -> None:
    notes = client.submit(**files, validate_only=True).notes
    assert notes == ("something else", "columns: text 'text', label 'label' (found by name)")


def test_a_file_whose_counterpart_is_elsewhere_is_read_alone(
    client: Client, uploads: Uploads, files: dict[str, Any]
) -> None:
    files["validation"] = "s3://bucket/b.csv"
    notes = client.submit(**files, validate_only=True).notes
    assert "train: a.csv was read here without the other file; all of it is checked after it has been sent" in notes
    files["train"].write_text("text,label\n,1\n")
    with pytest.raises(mvprune.InvalidArgument, match=r"\.train: .*a\.csv, line 2: 'text' must not be blank"):
        client.submit(**files, validate_only=True)


def test_an_unknown_task_is_left_to_the_server(
    fake: Fake, client: Client, uploads: Uploads, files: dict[str, Any]
) -> None:
    client.submit(**files, task="nothing", validate_only=True)
    assert fake.requests["CreateJob"][-1].job.spec.task == "nothing"


def test_all_data_of_a_sweep_is_read(client: Client, uploads: Uploads, files: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("text,stars\ngood,1\nbad,0\n")
    (tmp_path / "d.csv").write_text("text\tlabel\ngood\t1\n")
    axes: Any = {"train": [str(files.pop("train")), str(tmp_path / "c.csv")]}
    assert client.sweep(**files, axes=axes, validate_only=True).notes[0].startswith("columns: text 'text'")
    axes["train"].append(str(tmp_path / "d.csv"))
    points: Any = [{"train": str(tmp_path / "c.csv"), "label_column": "mark"}]
    with pytest.raises(mvprune.InvalidArgument) as caught:
        client.sweep(**files, axes=axes, points=points, validate_only=True)
    assert [field for field, _ in caught.value.violations] == [
        "sweep.spec.axes[0].values[2]", "sweep.spec.axes[0].values[1]", "sweep.spec.points[0].train"
    ]  # fmt: skip
