"""Client: submitting, reading, errors."""

from __future__ import annotations

import dataclasses
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

import mvprune
from mvprune import Client, JobState
from mvprune.v1 import job_pb2

from .conftest import NAME, Fake, job, refuse


def _echo(request: Any, context: grpc.ServicerContext) -> job_pb2.Job:
    answer = job("QUEUED")
    answer.spec.CopyFrom(request.job.spec)
    answer.policy.CopyFrom(request.job.policy)
    return answer


def test_submit_sends_every_option_in_its_field(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = _echo
    submitted = client.submit(
        model="bert-base-uncased",
        task="mrpc",
        density=0.03,
        dataset="nyu-mll/glue",
        dataset_config="mrpc",
        text_column="a",
        text_pair_column="b",
        label_column="c",
        model_revision="main",
        include=["*.attention.*", "*.dense"],
        exclude=("*.0.*",),
        allow_density_miss=True,
        teacher="org/teacher",
        teacher_revision="v1",
        temperature=4.0,
        alpha=0.0,
        seed=7,
        max_steps=10,
        epochs=2.5,
        batch_size=8,
        learning_rate=1e-4,
        weight_decay=0.0,
        max_length=64,
        accumulation_steps=2,
        precision="bf16",
        train_embeddings=True,
        compile=False,
        gradient_checkpointing=True,
        deterministic=True,
        evaluate_every=5,
        patience=3,
        keep_best=True,
        gpus=0.0,
        cpus=1.5,
        memory_bytes=8 << 30,
        max_attempts=2,
        display_name="mine",
        labels={"team": "search"},
        score_learning_rate=0.1,
        selection="global",
        initial_scores="zero",
        shape="one_shot",
        warmup=0.05,
        cooldown=0.3,
    )
    request = fake.asked("CreateJob")
    assert request.parent == "projects/default"
    assert 1 <= len(request.request_id) <= 64
    spec, policy = request.job.spec, request.job.policy
    assert (spec.model, spec.model_revision, spec.task, spec.seed) == ("bert-base-uncased", "main", "mrpc", 7)
    assert spec.target_density == 0.03
    assert spec.dataset == job_pb2.Dataset(
        hub_id="nyu-mll/glue", hub_config="mrpc", text_column="a", text_pair_column="b", label_column="c"
    )
    assert spec.movement == job_pb2.MovementPruning(
        schedule=job_pb2.Schedule(warmup=0.05, cooldown=0.3, shape="ONE_SHOT"),
        score_learning_rate=0.1,
        selection="GLOBAL",
        initial_scores="ZERO",
    )
    assert spec.training == job_pb2.Training(
        max_steps=10,
        epochs=2.5,
        batch_size=8,
        learning_rate=1e-4,
        weight_decay=0.0,
        max_length=64,
        accumulation_steps=2,
        precision="BF16",
        train_embeddings=True,
        compile=False,
        gradient_checkpointing=True,
        deterministic=True,
        evaluate_every=5,
        patience=3,
        keep_best=True,
    )
    assert spec.training.HasField("weight_decay")
    assert spec.training.HasField("compile")
    assert spec.teacher == job_pb2.Teacher(model="org/teacher", revision="v1", temperature=4.0, alpha=0.0)
    assert (list(spec.include), list(spec.exclude)) == (["*.attention.*", "*.dense"], ["*.0.*"])
    assert spec.allow_density_miss
    assert policy.resources == job_pb2.Resources(gpus=0.0, cpus=1.5, memory_bytes=8 << 30)
    assert policy.resources.HasField("gpus")
    assert policy.max_attempts == 2
    assert request.job.display_name == "mine"
    assert dict(request.job.labels) == {"team": "search"}
    # and back
    assert submitted.spec.method == "movement"
    assert submitted.spec.method_options == {
        "warmup": 0.05,
        "cooldown": 0.3,
        "shape": "one_shot",
        "score_learning_rate": 0.1,
        "selection": "global",
        "initial_scores": "zero",
    }
    assert submitted.spec.training == mvprune.Training(
        10, 2.5, 8, 1e-4, 0.0, 64, 2, "bf16", True, False, True, True, 5, 3, True
    )
    assert submitted.policy == mvprune.Policy(0.0, 1.5, 8 << 30, 2, None)
    assert submitted.spec.teacher == mvprune.Teacher("org/teacher", "", False, "v1", 4.0, 0.0)
    assert (submitted.spec.include, submitted.spec.exclude) == (("*.attention.*", "*.dense"), ("*.0.*",))
    assert submitted.spec.allow_density_miss


METHODS = {
    "movement": ["warmup", "cooldown", "shape", "score_learning_rate", "selection", "initial_scores"],
    "soft_movement": ["warmup", "cooldown", "shape", "score_learning_rate", "penalty", "initial_scores"],
    "l0": ["warmup", "cooldown", "shape", "score_learning_rate", "penalty"],
    "magnitude": ["warmup", "cooldown", "shape", "selection"],
    "one_shot_magnitude": ["when", "selection"],
    "random": ["warmup", "cooldown", "shape", "selection"],
}
WORDS = {"shape": "linear", "selection": "local", "initial_scores": "magnitude", "when": "before"}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_its_options_and_no_other(fake: Fake, client: Client, method: str) -> None:
    fake.answers["CreateJob"] = _echo
    options = {name: WORDS.get(name, 0.25) for name in METHODS[method]}
    job = client.submit(model="m", task="sst2", density=0.5, method=method, **options)
    assert (job.spec.method, job.spec.method_options) == (method, options)
    for other in {name for names in METHODS.values() for name in names} - set(options):
        with pytest.raises(mvprune.InvalidArgument, match=f"the options of {method}"):
            client.submit(model="m", task="sst2", density=0.5, method=method, **{other: WORDS.get(other, 0.25)})


def test_a_teacher_is_a_model_a_job_or_one_that_is_trained(
    fake: Fake, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["CreateJob"] = _echo
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()

    def sent(teacher: Any) -> tuple[Any, mvprune.Teacher | None]:
        job = client.submit(model="m", task="sst2", density=0.5, teacher=teacher)
        return fake.requests["CreateJob"][-1].job.spec.teacher, job.spec.teacher

    assert sent("train") == (job_pb2.Teacher(train=True), mvprune.Teacher("", "", True, "", None, None))
    assert sent("job:sst2-k3")[0] == job_pb2.Teacher(job="sst2-k3")
    assert sent("job:projects/p/jobs/j")[0] == job_pb2.Teacher(job="projects/p/jobs/j")
    earlier = client.submit(model="m", task="sst2", density=0.5)
    assert sent(earlier)[1] == mvprune.Teacher("", earlier.name, False, "", None, None)
    assert sent("./train")[0] == sent(Path("train"))[0] == job_pb2.Teacher(model=str(tmp_path / "train"))
    assert sent("") == (job_pb2.Teacher(), None)


def test_what_is_left_out_stays_unset(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = _echo
    client.submit(model="m", task="sst2", density=0.5, method="magnitude", score_learning_rate=None)
    spec = fake.asked("CreateJob").job.spec
    assert spec == job_pb2.CompressionSpec(
        model="m", task="sst2", target_density=0.5, magnitude=job_pb2.MagnitudePruning()
    )


@pytest.mark.parametrize("own", [{"train": "train.jsonl", "validation": "dev.tsv"}, {"dataset": "org/data"}])
def test_own_data_without_a_task_is_text_classification(fake: Fake, client: Client, own: dict[str, str]) -> None:
    fake.answers["CreateJob"] = _echo
    client.submit(model="m", density=0.5, **own)
    assert fake.asked("CreateJob").job.spec.task == "text-classification"


def test_paths_are_made_absolute_and_hub_ids_are_not(
    fake: Fake, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["CreateJob"] = _echo
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "bert").mkdir(parents=True)
    monkeypatch.setenv("HOME", "/home/someone")
    given_and_sent = {
        "models/bert": str(tmp_path / "models/bert"),
        "./absent": str(tmp_path / "absent"),
        "../up": str(tmp_path / "../up"),
        "~/m": "/home/someone/m",
        "/srv/m": "/srv/m",
        "google-bert/bert-base-uncased": "google-bert/bert-base-uncased",
        "bert": "bert",
    }
    for given in given_and_sent:
        client.submit(model=given, task="sst2", density=0.5)
    client.submit(model=Path("absent"), train="t.csv", validation=Path("v.csv"), density=0.5)
    sent = [request.job.spec for request in fake.requests["CreateJob"]]
    assert [spec.model for spec in sent[:-1]] == list(given_and_sent.values())
    assert sent[-1].model == str(tmp_path / "absent")
    assert sent[-1].dataset == job_pb2.Dataset(train=str(tmp_path / "t.csv"), validation=str(tmp_path / "v.csv"))


@pytest.mark.parametrize(
    ("options", "field", "description"),
    [
        (
            {"method": "l1"},
            "job.spec.method",
            "got 'l1'; allowed: movement, soft_movement, l0, magnitude, one_shot_magnitude, random",
        ),
        (
            {"method": "magnitude", "score_learning_rate": 0.1},
            "job.spec.magnitude.score_learning_rate",
            "got '0.1'; allowed: warmup, cooldown, shape, selection (the options of magnitude)",
        ),
        ({"shape": "square"}, "job.spec.movement.schedule.shape", "got 'square'; allowed: cubic, linear, one_shot"),
        (
            {"shape": "shape_unspecified"},
            "job.spec.movement.schedule.shape",
            "got 'shape_unspecified'; allowed: cubic, linear, one_shot",
        ),
        ({"precision": 16}, "job.spec.training.precision", "got '16'; allowed: fp32, bf16"),
        (
            {"include": "*.query"},
            "job.spec.include",
            "got '*.query'; allowed: a list of patterns over names of modules",
        ),
        ({"teacher_revision": 3}, "job.spec.teacher.revision", "got '3'; allowed: text"),
        ({"max_steps": "many"}, "job.spec.training.max_steps", "got 'many'; allowed: a whole number that fits"),
        ({"density": "x"}, "job.spec.target_density", "got 'x'; allowed: a number"),
        (
            {"batch_size": 1 << 40},
            "job.spec.training.batch_size",
            f"got '{1 << 40}'; allowed: a whole number that fits",
        ),
    ],
)
def test_mistakes_that_the_client_can_see(client: Client, options: Any, field: str, description: str) -> None:
    with pytest.raises(mvprune.InvalidArgument) as caught:
        client.submit(**{"model": "m", "task": "sst2", "density": 0.5, **options})
    assert caught.value.violations == (mvprune.FieldViolation(field, description),)


def test_violations_of_the_server(fake: Fake, client: Client) -> None:
    violations = {"job.spec.target_density": "got 'nan'; allowed: (0, 1]"}
    fake.answers["CreateJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations=violations
    )
    with pytest.raises(mvprune.InvalidArgument) as caught:
        client.submit(model="m", task="sst2", density=float("nan"))
    assert caught.value.violations == (("job.spec.target_density", "got 'nan'; allowed: (0, 1]"),)
    assert str(caught.value) == "job.spec.target_density: got 'nan'; allowed: (0, 1]"
    assert caught.value.__cause__ is None  # nothing of gRPC reaches the user


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", mvprune.NotFound),
        ("PERMISSION_DENIED", mvprune.NotAuthorised),
        ("UNAUTHENTICATED", mvprune.NotAuthorised),
        ("ALREADY_EXISTS", mvprune.AlreadyExists),
        ("FAILED_PRECONDITION", mvprune.FailedPrecondition),
        ("ABORTED", mvprune.FailedPrecondition),
        ("INTERNAL", mvprune.ServerError),
        ("UNIMPLEMENTED", mvprune.ServerError),
    ],
)
def test_errors_have_types(fake: Fake, client: Client, code: str, kind: type[mvprune.RequestRefused]) -> None:
    fake.answers["RetryJob"] = lambda request, context: refuse(context, grpc.StatusCode[code], "no", "WRONG_STATE")
    with pytest.raises(kind, match=r"^no$") as caught:
        client.retry("j1")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason) == (code, "WRONG_STATE")


def _unavailable(request: Any, context: grpc.ServicerContext) -> None:
    refuse(context, grpc.StatusCode.UNAVAILABLE, "the database is away", "DATABASE_UNAVAILABLE")


def test_a_submit_that_found_nobody_is_repeated_with_the_same_request_id(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = [_unavailable, _unavailable, _echo]
    assert client.submit(model="m", task="sst2", density=0.5).id == "j1"
    first, second, third = fake.requests["CreateJob"]
    assert first == second == third
    assert first.request_id


def test_what_is_not_safe_to_repeat_is_not_repeated(fake: Fake, client: Client) -> None:
    fake.answers |= {"RetryJob": _unavailable, "DeleteJob": _unavailable}
    for call in (client.retry, client.delete):
        with pytest.raises(mvprune.ServerUnreachable, match="not available now: the database is away"):
            call("j1")
    assert len(fake.requests["RetryJob"]) == len(fake.requests["DeleteJob"]) == 1


def test_nobody_there_is_said_soon() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    start = time.monotonic()
    with Client(address) as client, pytest.raises(mvprune.ServerUnreachable, match=f"no server answers at {address}"):
        client.get("j1")
    assert time.monotonic() - start < 5


def test_a_host_that_accepts_and_says_nothing_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with Client(address) as client, pytest.raises(mvprune.ServerUnreachable):
            client.get("j1")
        assert time.monotonic() - start < 5


def test_a_call_has_a_deadline(fake: Fake) -> None:
    def hang(request: Any, context: grpc.ServicerContext) -> None:
        while context.is_active():
            time.sleep(0.01)

    fake.answers["GetJob"] = hang
    with Client(fake.address, timeout=0.2) as client, pytest.raises(mvprune.ServerUnreachable, match=r"within 0\.2 s"):
        client.get("j1")


def test_names_of_jobs(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job()
    found = client.get("j1")
    client.get("projects/other/jobs/j2")
    client.get(found)
    assert [request.name for request in fake.requests["GetJob"]] == [NAME, "projects/other/jobs/j2", NAME]
    for bad in ("", "a/b", "projects/x/jobs/"):
        with pytest.raises(mvprune.InvalidArgument, match="allowed: a job's id"):
            client.get(bad)


def test_a_job_is_read_in_full(fake: Fake, client: Client) -> None:
    message = job(
        "FAILED",
        display_name="mine",
        state_reason="WORKER_LOST",
        labels={"a": "b"},
        metrics={"eval/accuracy": 0.5},
        progress=job_pb2.Progress(phase="pruning", step=3, total_steps=10, density=0.5, loss=0.25),
        model_size=job_pb2.ModelSize(total_parameters=3, encoder_parameters=2, prunable_weights=1),
        failure=job_pb2.Failure(reason="NAN_LOSS", message="lower the learning rate"),
    )
    message.progress.eta.FromMilliseconds(1500)
    fake.answers["GetJob"] = lambda request, context: message
    found = client.get("j1")
    assert found.id == "j1"
    assert found.state is JobState.FAILED
    assert found.state.is_terminal
    assert found.create_time == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.end_time is None
    assert found.progress == mvprune.Progress("pruning", 3, 10, 0.5, 0.25, 1.5)
    assert found.model_size == mvprune.ModelSize(3, 2, 1)
    assert found.failure == mvprune.Failure("NAN_LOSS", "lower the learning rate")
    assert (found.labels, found.metrics) == ({"a": "b"}, {"eval/accuracy": 0.5})
    assert found.spec.dataset is None


def test_a_job_is_data(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job()
    found = client.get("j1")
    assert found == client.get("j1") == dataclasses.replace(found, client=client)
    assert "client" not in dataclasses.asdict(found)
    assert "Client" not in repr(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]
    assert found.refresh() == found


def test_states_and_reasons_of_a_newer_server(fake: Fake, client: Client) -> None:
    newer = job(failure=job_pb2.Failure(message="new"))
    newer.MergeFromString(b"\x50\x63")  # state = 99
    newer.failure.MergeFromString(b"\x08\x63")  # reason = 99
    fake.answers["GetJob"] = lambda request, context: newer
    found = client.get("j1")
    assert found.state is JobState.UNSPECIFIED
    assert not found.state.is_terminal
    assert found.failure == mvprune.Failure("REASON_99", "new")


def test_models_mirror_the_contract() -> None:
    from mvprune.v1 import artifact_pb2

    pairs = {
        job_pb2.Job: mvprune.Job,
        job_pb2.Dataset: mvprune.Dataset,
        job_pb2.Teacher: mvprune.Teacher,
        job_pb2.Training: mvprune.Training,
        job_pb2.Progress: mvprune.Progress,
        job_pb2.ModelSize: mvprune.ModelSize,
        job_pb2.Failure: mvprune.Failure,
        job_pb2.Attempt: mvprune.Attempt,
        job_pb2.JobEvent: mvprune.JobEvent,
        job_pb2.WatchJobResponse: mvprune.JobUpdate,
        job_pb2.MetricPoint: mvprune.MetricPoint,
        artifact_pb2.Artifact: mvprune.Artifact,
        artifact_pb2.ArtifactFile: mvprune.ArtifactFile,
        artifact_pb2.Accounting: mvprune.Accounting,
    }
    for message, model in pairs.items():
        expected = [each.name for each in message.DESCRIPTOR.fields]
        assert [each.name for each in dataclasses.fields(model)] == expected, model.__name__
    for enum, kind in ((job_pb2.Job.State, JobState), (job_pb2.Attempt.State, mvprune.AttemptState)):
        assert [name.replace("STATE_UNSPECIFIED", "UNSPECIFIED") for name in dict(enum.items())] == list(kind)


def test_lists_are_paged(fake: Fake, client: Client) -> None:
    pages = {
        "": job_pb2.ListJobsResponse(jobs=[job(uid="1"), job(uid="2")], next_page_token="t"),
        "t": job_pb2.ListJobsResponse(jobs=[job(uid="3")]),
    }
    fake.answers["ListJobs"] = lambda request, context: pages[request.page_token]
    assert [found.uid for found in client.list()] == ["1", "2", "3"]
    assert [found.uid for found in client.list(limit=2)] == ["1", "2"]
    assert [request.page_size for request in fake.requests["ListJobs"]] == [500, 500, 2]


def test_events_attempts_and_metrics(fake: Fake, client: Client) -> None:
    event = job_pb2.JobEvent(sequence=1, type="STATE_CHANGED", to_state="QUEUED", actor="user", details={"a": "b"})
    attempt = job_pb2.Attempt(name=f"{NAME}/attempts/1", state="LOST", node="n1")
    point = job_pb2.MetricPoint(metric="loss", step=5, value=0.5, attempt=1)
    fake.answers |= {
        "ListJobEvents": lambda request, context: job_pb2.ListJobEventsResponse(events=[event]),
        "ListAttempts": lambda request, context: job_pb2.ListAttemptsResponse(attempts=[attempt]),
        "ListMetrics": lambda request, context: job_pb2.ListMetricsResponse(points=[point]),
    }
    assert list(client.events("j1")) == [
        mvprune.JobEvent(1, None, "STATE_CHANGED", "user", JobState.UNSPECIFIED, JobState.QUEUED, {"a": "b"})
    ]
    (found,) = client.attempts("j1")
    assert (found.state, found.node, found.failure) == (mvprune.AttemptState.LOST, "n1", None)
    assert list(client.metrics("j1")) == [mvprune.MetricPoint("loss", 5, 0.5, None, 1)]
    assert fake.asked("ListMetrics").parent == NAME


def test_cancel_and_delete(fake: Fake, client: Client) -> None:
    fake.answers |= {
        "GetJob": lambda request, context: job(),
        "CancelJob": lambda request, context: job("CANCELLING"),
        "DeleteJob": lambda request, context: job_pb2.DeleteJobResponse(),
    }
    found = client.get("j1")
    assert found.cancel("enough").state is JobState.CANCELLING
    assert fake.asked("CancelJob") == job_pb2.CancelJobRequest(name=NAME, reason="enough")
    found.delete()
    assert fake.asked("DeleteJob") == job_pb2.DeleteJobRequest(name=NAME)


def test_where_the_address_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MVPRUNE_ADDRESS", raising=False)
    assert Client().address == "127.0.0.1:7070"
    monkeypatch.setenv("MVPRUNE_ADDRESS", "host:1")
    assert Client().address == "host:1"
    assert Client("other:2").address == "other:2"


def test_a_proxy_is_not_asked_for_this_machine(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    fake.answers["GetJob"] = lambda request, context: job()
    with Client(fake.address) as client:
        assert client.get("j1").id == "j1"


def test_exported_members() -> None:
    from mvprune import _exceptions, _models

    public = {"Client", "load", "__version__"}
    for module in (_models, _exceptions):
        public |= {name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    assert set(mvprune.__all__) == public
    for name in set(mvprune.__all__) - {"load"}:
        assert getattr(mvprune, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mvprune.nothing
