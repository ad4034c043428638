"""mvpctl push: an artifact as a run of a real MLflow server, and as a folder for the Hub."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.full_disk import full_disk
from tests.unit.infer.conftest import tokenizer, write_artifact  # noqa: F401 (a fixture)

from mvprune import PushFailed
from mvprune.artifact import Accounting, ArtifactFile, DatasetSource, LayerCount, Manifest, ModelSource, write_weights
from mvprune.artifact.history import Evaluated, History, Phase
from mvprune.publish import push_to_mlflow
from mvprune.v1 import artifact_pb2, job_pb2

pytestmark = pytest.mark.timeout(600)  # MLflow's server imports for a long time where others work too

NAME = "projects/default/jobs/j1"
HISTORY = History((Phase("pruning", 3, (1, 2, 3), (0.7, 0.6, 0.5), (1.0, 0.6, 0.25), (Evaluated(3, {"f1": 0.5}),)),))


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real MLflow server with SQLite behind it; its address."""
    folder = tmp_path_factory.mktemp("mlflow")
    bound = socket.socket()  # handed over as its standard input: no other program can take the port meanwhile
    bound.bind(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{bound.getsockname()[1]}"
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--uvicorn-opts", "--fd 0"]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("wb") as log, bound:
        server = subprocess.Popen([*command, *stores], stdin=bound, stdout=log, stderr=log, env=environment)
    try:
        deadline = time.monotonic() + 480
        while not _answers(f"{address}/health"):
            assert server.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait(480)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):  # noqa: S310 (http)
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """An artifact with one matrix."""
    return _write_artifact(tmp_path / "artifact", seed=7)


def _write_artifact(folder: Path, seed: int) -> Path:
    folder.mkdir()
    weight = np.zeros((4, 8), np.float32)
    weight[0] = 1
    write_weights(folder / "weights.safetensors", {"layer.0.weight": weight}, ["layer.0.weight"])
    (folder / "README.md").write_text("# The card\n")
    (folder / "history.json").write_bytes(HISTORY.to_json())
    files = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        files.append(ArtifactFile(path.name, len(content), hashlib.sha256(content).hexdigest(), "text/plain"))
    manifest = Manifest(
        spec={"task": "mrpc", "movement": {"schedule": {"shape": "cubic"}}, "include": ["*"], "odd name?": "x" * 9000},
        model=ModelSource("tiny", "", "a" * 64),
        dataset=DatasetSource("mrpc", "b" * 64, 256, 64),
        metrics={"eval/f1": 0.5, "dense/f1": 0.75, "delta/f1": -0.25},
        primary_metric="f1",
        accounting=Accounting(0.25, 0.25, 32, 8, 40, 16, 100, 70, 400, 80),
        layers=(LayerCount("layer.0.weight", (4, 8), 0.25, 8),),
        versions={"mvprune": "0.1.0"},
        seed=seed,
        files=tuple(files),
    )
    (folder / "manifest.json").write_bytes(manifest.to_json())
    return folder


def runs(address: str, experiment: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(address)
    found: list[Any] = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return found


@pytest.mark.slow
def test_an_artifact_is_one_run(mlflow_server: str, artifact: Path, mvpctl: Callable[..., Any]) -> None:
    from mlflow import MlflowClient

    command = ("push", str(artifact), "--to", "mlflow", "--tracking-uri", mlflow_server, "--experiment", "once")
    first, second = mvpctl(*command, "-o", "json"), mvpctl(*command, "-o", "json")
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.json["new"]
    assert second.json == first.json | {"new": False}
    (run,) = runs(mlflow_server, "once")
    assert run.info.run_id == first.json["run_id"]
    assert run.info.status == "FINISHED"
    assert run.data.tags["mvprune.digest"] == hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest()
    assert run.data.tags["mvprune.method"] == "movement"
    assert run.data.tags["mlflow.runName"] == "artifact"
    assert run.data.tags["mlflow.note.content"] == "# The card\n"
    assert run.data.params == {
        "task": "mrpc",
        "movement.schedule.shape": "cubic",
        "include": '["*"]',
        "odd name_": "x" * 6000,
        "seed": "7",
    }
    assert run.data.metrics["eval/f1"] == 0.5
    assert run.data.metrics["sparse_bytes"] == 80
    client = MlflowClient(mlflow_server)
    curve = client.get_metric_history(run.info.run_id, "history/pruning/loss")
    assert [(point.step, point.value) for point in curve] == [(1, 0.7), (2, 0.6), (3, 0.5)]
    assert run.data.metrics["history/pruning/f1"] == 0.5
    kept = {file.path for file in client.list_artifacts(run.info.run_id, "artifact")}
    assert kept == {f"artifact/{path.name}" for path in artifact.iterdir()}
    fetched = Path(client.download_artifacts(run.info.run_id, "artifact/weights.safetensors"))
    assert fetched.read_bytes() == (artifact / "weights.safetensors").read_bytes()


@pytest.mark.slow
def test_another_artifact_is_another_run(mlflow_server: str, artifact: Path, tmp_path: Path) -> None:
    other = _write_artifact(tmp_path / "other", seed=8)
    found = {push_to_mlflow(one, tracking_uri=mlflow_server, experiment="two").run_id for one in (artifact, other)}
    assert len(found) == len(runs(mlflow_server, "two")) == 2


@pytest.mark.slow
def test_a_push_that_broke_off_goes_on(mlflow_server: str, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    class Broken(mlflow.MlflowClient):
        def log_artifacts(self, *_: Any, **__: Any) -> None:
            raise mlflow.exceptions.MlflowException("the connection is gone\nand more")

    monkeypatch.setattr(mlflow, "MlflowClient", Broken)
    with pytest.raises(PushFailed, match=r"^MLflow: the connection is gone$"):
        push_to_mlflow(artifact, tracking_uri=mlflow_server, experiment="broken")
    monkeypatch.undo()
    (broken,) = runs(mlflow_server, "broken")
    assert broken.info.status == "RUNNING"
    pushed = push_to_mlflow(artifact, tracking_uri=mlflow_server, experiment="broken")
    (run,) = runs(mlflow_server, "broken")
    assert pushed.run_id == run.info.run_id == broken.info.run_id
    assert run.info.status == "FINISHED"
    curve = mlflow.MlflowClient(mlflow_server).get_metric_history(run.info.run_id, "history/pruning/loss")
    assert [point.step for point in curve] == [1, 2, 3], "no point is there twice"


def _serve(fake: Any, folder: Path) -> None:
    """A job that has succeeded, whose artifact is that of the folder."""
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    files = [
        artifact_pb2.ArtifactFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in content.items()
    ]
    digest = hashlib.sha256(content["manifest.json"]).hexdigest()
    answer = artifact_pb2.Artifact(name=f"projects/default/artifacts/{digest}", job=NAME, files=files)
    job = job_pb2.Job(name=NAME, state="SUCCEEDED", artifact=answer.name, labels={"team": "search"})
    job.spec.movement.SetInParent()

    def read(request: Any, context: Any) -> Iterator[Any]:
        data = content[request.path][request.offset :]
        yield artifact_pb2.ReadFileResponse(offset=request.offset, data=data)
        yield artifact_pb2.ReadFileResponse(offset=len(content[request.path]), end=True)

    fake.answers |= {
        "GetJob": lambda request, context: job,
        "GetArtifact": lambda request, context: answer,
        "GenerateDownloadUrls": lambda request, context: artifact_pb2.GenerateDownloadUrlsResponse(),
        "ReadFile": read,
    }


@pytest.mark.slow
def test_a_job_is_fetched_and_pushed(
    mlflow_server: str, fake: Any, artifact: Path, mvpctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _serve(fake, artifact)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    outcome = mvpctl("push", "j1", "--to", "mlflow", "--experiment", "jobs")
    assert outcome.code == 0, outcome.err
    (run,) = runs(mlflow_server, "jobs")
    assert outcome.out.splitlines()[-1] == f"pushed: run {run.info.run_id} of experiment jobs"
    assert run.data.tags["mlflow.runName"] == "j1"
    assert run.data.tags["mvprune.job"] == NAME
    assert run.data.tags["mvprune.label.team"] == "search"


_LOAD = """
import sys
sys.modules["torch"] = None
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/sentiment@candidate")
answers = [model.predict(given) for given in (["good film"], pandas.DataFrame({"text": ["good film"]}))]
assert answers[0] == answers[1], answers
print(answers[0][0]["label"])
"""


@pytest.mark.slow
def test_a_version_of_a_registered_model_loads_without_torch(
    mlflow_server: str,
    mvpctl: Callable[..., Any],
    tmp_path: Path,
    tokenizer: Any,  # noqa: F811
) -> None:
    from mlflow import MlflowClient

    def push(folder: Path, *more: str) -> Any:
        to = ("--to", "mlflow", "--tracking-uri", mlflow_server, "--register", "sentiment", *more)
        outcome = mvpctl("push", str(folder), *to, "-o", "json")
        assert outcome.code == 0, outcome.err
        return outcome.json

    first = write_artifact(tmp_path / "first", "sst2", tokenizer)
    assert [push(first)["version"], push(first)["version"]] == ["1", "1"]
    client = MlflowClient(mlflow_server)
    (version,) = client.search_model_versions("name = 'sentiment'")
    assert version.tags["mvprune.digest"] == hashlib.sha256((first / "manifest.json").read_bytes()).hexdigest()
    assert 0 < float(version.tags["mvprune.density"]) < 1
    command = [sys.executable, "-c", _LOAD, mlflow_server]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() in ("negative", "positive")

    second = write_artifact(tmp_path / "second", "mnli", tokenizer)
    assert push(second, "--alias", "champion")["version"] == "2"
    assert client.get_model_version_by_alias("sentiment", "candidate").version == "1"
    assert client.get_model_version_by_alias("sentiment", "champion").version == "2"


def test_a_full_disk_of_tensorboard_is_one_line(
    artifact: Path, mvpctl: Callable[..., Any], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with full_disk(100):
        outcome = mvpctl("push", str(artifact), "--to", "tensorboard", str(tmp_path / "runs"))
    assert outcome.code != 0
    assert re.fullmatch(rf"error: {tmp_path}/runs/\S+: File too large\n", outcome.err)
    assert not [one for one in recwarn if one.category is pytest.PytestUnhandledThreadExceptionWarning]


def test_it_becomes_a_run_of_tensorboard(artifact: Path, mvpctl: Callable[..., Any], tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    command = ("push", str(artifact), "--to", "tensorboard", str(tmp_path / "runs"), "-o", "json")
    first, second = mvpctl(*command), mvpctl(*command)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.json == first.json | {"new": False}
    (run,) = (tmp_path / "runs").iterdir()
    assert run == Path(first.json["directory"])
    (file,) = run.iterdir()
    assert ".tfevents." in file.name
    data, found, at = file.read_bytes(), [], 0
    while at < len(data):  # length, its checksum, an event, its checksum
        length = int.from_bytes(data[at : at + 8], "little")
        found.append(Event.FromString(data[at + 12 : at + 12 + length]))
        at += 16 + length
    values = [(one.tag, event.step, one.simple_value) for event in found for one in event.summary.value]
    assert [(step, round(value, 3)) for tag, step, value in values if tag == "history/pruning/loss"] == [
        (1, 0.7),
        (2, 0.6),
        (3, 0.5),
    ]
    assert ("eval/f1", 0, 0.5) in values


def test_a_job_becomes_a_folder(fake: Any, artifact: Path, mvpctl: Callable[..., Any], tmp_path: Path) -> None:
    _serve(fake, artifact)
    outcome = mvpctl("push", "j1", "--to", "hub-folder", str(tmp_path / "repository"), "--quiet")
    assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'repository'}\n")
    assert {path.name for path in (tmp_path / "repository").iterdir()} == {
        ".gitattributes",
        *(path.name for path in artifact.iterdir()),
    }


def test_nothing_is_fetched_for_a_folder_that_is_taken(
    fake: Any, artifact: Path, mvpctl: Callable[..., Any], tmp_path: Path
) -> None:
    _serve(fake, artifact)
    (tmp_path / "file").touch()
    outcome = mvpctl("push", "j1", "--to", "hub-folder", str(tmp_path))
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path}: must be a new or empty folder, got one with files\n")
    assert not fake.requests


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--to", "s3"], "--to must be one of mlflow, hub OWNER/NAME, hub-folder OUT, tensorboard LOGDIR, got 's3'"),
        (
            ["--to", "hub-folder"],
            "--to must be one of mlflow, hub OWNER/NAME, hub-folder OUT, tensorboard LOGDIR, got 'hub-folder'",
        ),
        (
            ["--to", "hub-folder", ""],
            "--to must be one of mlflow, hub OWNER/NAME, hub-folder OUT, tensorboard LOGDIR, got 'hub-folder '",
        ),
        (
            ["--to", "mlflow", "out"],
            "--to must be one of mlflow, hub OWNER/NAME, hub-folder OUT, tensorboard LOGDIR, got 'mlflow out'",
        ),
        (["--to", "mlflow"], "--tracking-uri must be MLflow's address, got nothing; or set MLFLOW_TRACKING_URI"),
        (["--to", "hub", "me/m", "--register", "m"], "--register must be used with --to mlflow"),
        (["--to", "mlflow", "--alias", "a"], "--alias must be used with --register"),
        (["--to", "mlflow", "--dense"], "--dense must be used with --to hub or hub-folder"),
        (["--to", "hub-folder", "new", "--private"], "--private must be used with --to hub"),
        (["--to", "hub", "me/m", "--create-pr", "--revision", "b"], "--create-pr must be unset with --revision"),
        (["--to", "hub-folder", "new", "--experiment", "e"], "--experiment must be used with --to mlflow"),
        (["--to", "hub-folder", "."], "must be a new or empty folder"),
        ([], "--to"),
    ],
)
def test_what_is_refused(
    artifact: Path, mvpctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    outcome = mvpctl("push", str(artifact), *argv)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.out == ""


def test_a_folder_that_is_no_artifact(mvpctl: Callable[..., Any], tmp_path: Path) -> None:
    outcome = mvpctl("push", str(tmp_path), "--to", "hub-folder", str(tmp_path / "out"))
    assert outcome.code == 2
    assert "must be an artifact's folder" in outcome.err


def test_a_server_that_is_away(artifact: Path, mvpctl: Callable[..., Any]) -> None:
    outcome = mvpctl("push", str(artifact), "--to", "mlflow", "--tracking-uri", "http://user:secret@127.0.0.1:9")
    assert outcome.code == 7
    assert outcome.err.startswith("error: MLflow: ")
    assert "secret" not in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("target", "package", "extra"),
    [
        ("mlflow", "mlflow", "mlflow"),
        ("hub o/m", "huggingface_hub", "hub"),
        ("tensorboard logs", "tensorboardX", "tensorboard"),
    ],
)
def test_nothing_is_fetched_without_the_package(
    fake: Any,
    artifact: Path,
    mvpctl: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    package: str,
    extra: str,
) -> None:
    _serve(fake, artifact)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    outcome = mvpctl("push", "j1", "--to", *target.split())
    said = f"error: this needs the package {package}: pip install 'mvprune[{extra}]'\n"
    assert (outcome.code, outcome.err, fake.requests) == (2, said, {})
