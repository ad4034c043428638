"""mvpctl upload, and what submit and sweep create say about what they send."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bert_folder import write_bert
from tests.unit.cli.test_sweep_create import created
from tests.unit.client.scripted_server import Fake, Mvpctl, echo, refuse
from tests.unit.client.scripted_uploads import Uploads


@pytest.fixture
def uploads(fake: Fake) -> Uploads:
    fake.answers["CreateJob"] = echo
    fake.answers["CreateSweep"] = created
    return Uploads(fake)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = write_bert(tmp_path / "my-model")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "onnx").mkdir()
    return folder


def test_submit_says_what_it_sends_and_what_not(uploads: Uploads, mvpctl: Mvpctl, model: Path) -> None:
    submit = ("submit", "--model", str(model), "--task", "sst2", "--density", "0.5")
    outcome = mvpctl(*submit)
    (name,) = uploads.announced
    digest = name.rpartition("/")[2][:12]
    assert outcome.code == 0
    files = "config.json (84 B), model.safetensors (100.1 kB), vocab.txt (39 B)"
    assert outcome.err.splitlines() == [
        f"note: model: the folder {model} is sent to the server: {files}; 100.2 kB in all, digest {digest}",
        "note: model: not sent: onnx/, pytorch_model.bin",
    ]
    again = mvpctl(*submit, "-o", "json")
    assert again.err.splitlines() == [
        f"note: model: the folder {model} is on the server already, 100.2 kB, digest {digest}"
    ]
    assert again.json["spec"]["model"].startswith(f"upload:{digest}")
    assert mvpctl(*submit, "--quiet").err == ""


@pytest.mark.parametrize("command", ["submit", "sweep create", "upload create"])
def test_a_dry_run_sends_nothing_and_says_so(uploads: Uploads, mvpctl: Mvpctl, model: Path, command: str) -> None:
    rest = {
        "submit": ["--model", str(model), "--task", "sst2", "--density", "0.5", "--validate-only"],
        "sweep create": ["--model", str(model), "--task", "sst2", "--density", "0.5,0.1", "--validate-only"],
        "upload create": [str(model), "--validate-only"],
    }
    outcome = mvpctl(*command.split(), *rest[command])
    assert outcome.code == 0
    assert "would be sent to the server: config.json" in outcome.err
    assert f"; nothing is sent with {rest[command][-1]}\n" in outcome.err
    assert uploads.announced == {}
    assert uploads.put == []


def test_a_sweep_sends_the_values_of_axes_and_points(
    fake: Fake, uploads: Uploads, mvpctl: Mvpctl, model: Path, tmp_path: Path
) -> None:
    small, teacher = write_bert(tmp_path / "small"), write_bert(tmp_path / "teacher")
    (tmp_path / "sweep.yaml").write_text(
        "model: my-model\ntask: sst2\nsweep:\n  density: [0.1, 0.2]\n  teacher: [./teacher, none]\n"
        "  points: [{density: 1, model: ./small}]\n  without: [{teacher: ./teacher, density: 0.2}]\n"
    )
    outcome = mvpctl("sweep", "create", "-f", str(tmp_path / "sweep.yaml"))
    assert outcome.code == 0, outcome.err
    trial, real = fake.requests["CreateSweep"]
    assert (trial.validate_only, real.validate_only) == (True, False)
    spec = real.sweep.spec
    sent = {upload.display_name: name.rpartition("/")[2] for name, upload in uploads.announced.items()}
    assert sent.keys() == {model.name, small.name, teacher.name}
    assert spec.base.model == f"upload:{sent['my-model']}/my-model"
    assert spec.axes[1].values[0].string_value == f"upload:{sent['teacher']}/teacher"
    assert spec.points[0]["model"] == f"upload:{sent['small']}/small"
    assert spec.exclude[0]["teacher"] == spec.axes[1].values[0].string_value


def test_a_folder_that_must_not_be_sent_is_refused_at_its_place(
    uploads: Uploads, mvpctl: Mvpctl, model: Path, tmp_path: Path
) -> None:
    (model / "model.safetensors").unlink()
    outcome = mvpctl("submit", "--model", str(model), "--task", "sst2", "--density", "0.5")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: job.spec.model (--model): {str(model)!r} must have its weights in ")
    file = tmp_path / "job.yaml"
    file.write_text("task: sst2\ndensity: 0.5\nmodel: my-model\nteacher: /srv/absent\n")
    outcome = mvpctl("submit", "-f", str(file))
    assert outcome.code == 2
    assert f"error: {file}:3:8: model: " in outcome.err
    assert f"error: {file}:4:10: teacher: must be a folder of this machine, got '/srv/absent', not found" in outcome.err
    assert "server:/srv/absent is a folder of the server" in outcome.err
    file.write_text("task: sst2\nmodel: m\nsweep: {density: [0.5], teacher: [none, /srv/absent]}\n")
    outcome = mvpctl("sweep", "create", "-f", str(file))
    assert outcome.code == 2
    assert f"error: {file}:3:41: sweep.teacher[1]: must be a folder of this machine" in outcome.err
    outcome = mvpctl(
        "sweep", "create", "--model", "m", "--task", "sst2", "--density", "1", "--teacher", "none,./absent"
    )
    assert "sweep.spec.axes[0].values[1] (--teacher): must be a folder of this machine" in outcome.err


def test_create_list_and_delete(uploads: Uploads, mvpctl: Mvpctl, model: Path) -> None:
    made = mvpctl("upload", "create", str(model), "-o", "json").json
    assert (made["kind"], made["state"], made["total_bytes"]) == ("model", "READY", 100_190)
    assert made["reference"] == f"upload:{made['digest']}/my-model"
    assert mvpctl("upload", "create", str(model)).out == f"sent: my-model (3 files, 100.2 kB)\n{made['reference']}\n"
    listed = mvpctl("upload", "list")
    assert listed.out.splitlines()[1].split()[:4] == [made["digest"][:12], "my-model", "model", "READY"]
    assert mvpctl("upload", "list", "--quiet").out == f"{made['reference']}\n"
    assert mvpctl("upload", "list", "-o", "json").json == [made]
    digest = made["digest"][:12]
    assert mvpctl("upload", "delete", digest).out == f"upload {digest} deleted\n"
    assert mvpctl("upload", "delete", digest).code == 8
    assert mvpctl("upload", "delete", "my-model").code == 2


def test_a_quota_is_a_refusal(fake: Fake, uploads: Uploads, mvpctl: Mvpctl, model: Path) -> None:
    import grpc

    fake.answers["CreateUpload"] = lambda request, context: refuse(
        context, grpc.StatusCode.RESOURCE_EXHAUSTED, "the uploads must have at most 5 bytes", "QUOTA_EXCEEDED"
    )
    outcome = mvpctl("submit", "--model", str(model), "--task", "sst2", "--density", "0.5")
    assert (outcome.code, outcome.err) == (2, "error: the uploads must have at most 5 bytes\n")
    assert uploads.put == []
