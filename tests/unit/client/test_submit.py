"""Client: submitting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.bert_folder import write_bert
from tests.unit.client.scripted_server import Fake, echo, refuse
from tests.unit.client.scripted_uploads import Uploads

import mvprune
from mvprune import Client
from mvprune.v1 import job_pb2


def test_submit_sends_every_option_in_its_field(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo
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
        pattern="1:32",
        structure="heads",
        structure_density=0.5,
        structure_block_size=16,
        structure_fill=True,
        trim_positions=True,
        target_bytes=10_000_000,
        allow_density_miss=True,
        teacher="org/teacher",
        teacher_revision="v1",
        temperature=4.0,
        alpha=0.0,
        hidden_states=1.0,
        teacher_writes_targets=True,
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
        dropout=True,
        compile=False,
        gradient_checkpointing=True,
        deterministic=True,
        evaluate_every=5,
        patience=3,
        best_metric="f1",
        keep_best=True,
        lr_density_exponent=0.5,
        gpus=0.0,
        workers=2,
        cpus=1.5,
        memory_bytes=8 << 30,
        max_attempts=2,
        priority=-5,
        max_runtime=7200,
        max_queue_time=90.5,
        start_timeout=60.0,
        checkpoint_interval=30,
        retention=86_400,
        measure_latency=True,
        gates=["f1>=80"],
        display_name="mine",
        labels={"team": "search"},
        method="movement",
        score_learning_rate=0.1,
        selection="global",
        initial_scores="zero",
        shape="one_shot",
        pruning_start=0.05,
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
        schedule=job_pb2.Schedule(pruning_start=0.05, cooldown=0.3, shape="ONE_SHOT"),
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
        dropout=True,
        compile=False,
        gradient_checkpointing=True,
        deterministic=True,
        evaluate_every=5,
        patience=3,
        best_metric="f1",
        keep_best=True,
        lr_density_exponent=0.5,
    )
    assert spec.training.HasField("weight_decay")
    assert spec.training.HasField("compile")
    assert spec.teacher == job_pb2.Teacher(
        model="org/teacher", revision="v1", temperature=4.0, alpha=0.0, hidden_states=1.0, writes_targets=True
    )
    assert (list(spec.include), list(spec.exclude)) == (["*.attention.*", "*.dense"], ["*.0.*"])
    assert spec.pattern == "1:32"
    assert spec.structure == job_pb2.CompressionSpec.HEADS
    assert (spec.structure_density, spec.structure_block_size, spec.structure_fill) == (0.5, 16, True)
    assert (spec.trim_positions, spec.target_bytes) == (True, 10_000_000)
    assert spec.allow_density_miss
    assert policy.resources == job_pb2.Resources(gpus=0.0, cpus=1.5, memory_bytes=8 << 30, workers=2)
    assert policy.resources.HasField("gpus")
    assert policy == job_pb2.ExecutionPolicy(
        resources=policy.resources,
        max_attempts=2,
        start_timeout=Duration(seconds=60),
        priority=-5,
        max_runtime=Duration(seconds=7200),
        max_queue_time=Duration(seconds=90, nanos=500_000_000),
        measure_latency=True,
        retention=Duration(seconds=86_400),
        checkpoint_interval=Duration(seconds=30),
        gates=[job_pb2.Gate(metric="eval/f1", min=0.8)],
    )
    assert request.job.display_name == "mine"
    assert dict(request.job.labels) == {"team": "search"}
    # and back
    assert submitted.spec.method == "movement"
    assert submitted.spec.method_options == {
        "pruning_start": 0.05,
        "cooldown": 0.3,
        "shape": "one_shot",
        "score_learning_rate": 0.1,
        "selection": "global",
        "initial_scores": "zero",
    }
    assert submitted.spec.training == mvprune.Training(
        preset=None,
        max_steps=10,
        epochs=2.5,
        batch_size=8,
        learning_rate=1e-4,
        lr_warmup=None,
        lr_density_exponent=0.5,
        weight_decay=0.0,
        max_length=64,
        accumulation_steps=2,
        precision="bf16",
        train_embeddings=True,
        dropout=True,
        compile=False,
        gradient_checkpointing=True,
        deterministic=True,
        evaluate_every=5,
        patience=3,
        keep_best=True,
        best_metric="f1",
    )
    gates = (mvprune.Gate("eval/f1", min=0.8),)
    times = (7200.0, 90.5, 60.0, 30.0, 86_400.0)
    assert submitted.policy == mvprune.Policy(0.0, 1.5, 8 << 30, 2, -5, 2, *times, True, gates)
    assert submitted.spec.teacher == mvprune.Teacher("org/teacher", "", False, False, "v1", 4.0, 0.0, 1.0, True)
    assert (submitted.spec.include, submitted.spec.exclude) == (("*.attention.*", "*.dense"), ("*.0.*",))
    assert submitted.spec.pattern == "1:32"
    assert submitted.spec.structure == "heads"
    assert (submitted.spec.structure_density, submitted.spec.structure_block_size) == (0.5, 16)
    assert submitted.spec.structure_fill
    assert submitted.spec.allow_density_miss


def test_a_teacher_is_a_model_a_job_one_that_is_trained_or_none(
    fake: Fake, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["CreateJob"] = echo
    Uploads(fake)
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "train")

    def sent(teacher: Any) -> tuple[Any, mvprune.Teacher | None]:
        job = client.submit(model="m", task="sst2", density=0.5, teacher=teacher)
        return fake.requests["CreateJob"][-1].job.spec.teacher, job.spec.teacher

    assert sent("train") == (
        job_pb2.Teacher(train=True),
        mvprune.Teacher("", "", True, False, "", None, None, None, False),
    )
    assert sent("none") == (
        job_pb2.Teacher(none=True),
        mvprune.Teacher("", "", False, True, "", None, None, None, False),
    )
    assert sent("job:sst2-k3")[0] == job_pb2.Teacher(job="sst2-k3")
    assert sent("job:projects/p/jobs/j")[0] == job_pb2.Teacher(job="projects/p/jobs/j")
    earlier = client.submit(model="m", task="sst2", density=0.5)
    assert sent(earlier)[1] == mvprune.Teacher("", earlier.name, False, False, "", None, None, None, False)
    assert sent("./train")[0] == sent(Path("train"))[0]
    assert sent("./train")[0].model.startswith("upload:")
    assert sent("server:/srv/t")[0] == job_pb2.Teacher(model="server:/srv/t")
    assert sent("") == (job_pb2.Teacher(), None)


def test_a_mask_is_a_model_or_a_job_and_makes_the_method_locked_mask(
    fake: Fake, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["CreateJob"] = echo
    Uploads(fake)
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "pruned")

    def sent(mask: Any, **options: Any) -> tuple[job_pb2.LockedMask, mvprune.Spec]:
        job = client.submit(model="m", task="sst2", mask_from=mask, **options)
        return fake.requests["CreateJob"][-1].job.spec.locked_mask, job.spec

    message, spec = sent("job:sst2-k3", rewind=0.1)
    assert message == job_pb2.LockedMask(mask_from=job_pb2.Mask(job="sst2-k3"), rewind=0.1)
    assert (spec.method, spec.target_density) == ("locked_mask", 0.0)
    assert spec.method_options == {"mask_from": "job:sst2-k3", "rewind": 0.1}
    earlier = client.submit(model="m", task="sst2", density=0.5)
    assert sent(earlier)[0].mask_from == job_pb2.Mask(job=earlier.name)
    assert sent("./pruned")[0].mask_from.model.startswith("upload:")
    assert sent("org/pruned", mask_revision="v1")[0].mask_from == job_pb2.Mask(model="org/pruned", revision="v1")
    assert sent("server:/srv/m", density=0.1)[1].target_density == 0.1
    with pytest.raises(mvprune.InvalidArgument, match="mask_from: must be unset for movement, which has pruning_start"):
        client.submit(model="m", task="sst2", method="movement", mask_from="job:sst2-k3")


def test_what_is_left_out_stays_unset(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo
    client.submit(model="m", task="sst2", density=0.5, method="magnitude", score_learning_rate=None)
    spec = fake.asked("CreateJob").job.spec
    assert spec == job_pb2.CompressionSpec(
        model="m", task="sst2", target_density=0.5, magnitude=job_pb2.MagnitudePruning()
    )


@pytest.mark.parametrize(
    "own", [{"train": "server:/train.jsonl", "validation": "server:/dev.tsv"}, {"dataset": "org/data"}]
)
def test_own_data_without_a_task_is_text_classification(fake: Fake, client: Client, own: dict[str, str]) -> None:
    fake.answers["CreateJob"] = echo
    client.submit(model="m", density=0.5, **own)
    assert fake.asked("CreateJob").job.spec.task == "text-classification"


def test_paths_are_of_this_machine_and_hub_ids_are_not(
    fake: Fake, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers["CreateJob"] = echo
    uploads = Uploads(fake)
    here = tmp_path / "here"
    write_bert(here / "models" / "bert")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here))
    folder = here / "models" / "bert"
    paths = ("models/bert", "./models/bert", "../here/models/bert", "~/models/bert", str(folder), Path("models/bert"))
    for given in (*paths, "google-bert/bert-base-uncased", "bert", "server:/srv/m"):
        client.submit(model=given, task="sst2", density=0.5)
    sent = [request.job.spec.model for request in fake.requests["CreateJob"] if not request.validate_only]
    (name,) = uploads.announced
    assert sent[: len(paths)] == [f"upload:{name.rpartition('/')[2]}/bert"] * len(paths)
    assert sent[len(paths) :] == ["google-bert/bert-base-uncased", "bert", "server:/srv/m"]
    for absent in ("./absent", "~/absent", "/srv/absent", Path("absent")):
        with pytest.raises(mvprune.InvalidArgument, match=r"job.spec.model: must be a folder of this machine, got .*/"):
            client.submit(model=absent, task="sst2", density=0.5)


@pytest.mark.parametrize(
    ("options", "field", "description"),
    [
        (
            {"method": "l1"},
            "job.spec.method",
            "must be one of movement, soft_movement, l0, magnitude, one_shot_magnitude, random, platon, obert, smp, "
            "locked_mask, rigl, sparse_momentum, rpp, auto, got 'l1'",
        ),
        (
            {"method": "magnitude", "score_learning_rate": 0.1},
            "job.spec.magnitude.score_learning_rate",
            "must be unset for magnitude, which has pruning_start, cooldown, shape, events, first_event, selection, "
            "got '0.1'",
        ),
        (
            {"shape": "square"},
            "job.spec.auto.schedule.shape",
            "must be one of cubic, linear, one_shot, events, got 'square'",
        ),
        (
            {"shape": "shape_unspecified"},
            "job.spec.auto.schedule.shape",
            "must be one of cubic, linear, one_shot, events, got 'shape_unspecified'",
        ),
        (
            {"when": "before"},
            "job.spec.auto.when",
            "must be unset for auto, which has pruning_start, cooldown, shape, events, first_event, "
            "score_learning_rate, selection, initial_scores, penalty, gradients, gradient_batch_size, damping, "
            "fisher_block_size, weight_update, got 'before'; give a method that has it: one_shot_magnitude",
        ),
        ({"precision": 16}, "job.spec.training.precision", "must be one of fp32, bf16, auto, got '16'"),
        (
            {"include": "*.query"},
            "job.spec.include",
            "must be a list of texts, got '*.query'",
        ),
        ({"teacher_revision": 3}, "job.spec.teacher.revision", "must be text, got '3'"),
        ({"model": "m\udcff"}, "job.spec.model", "must be UTF-8, got 'm\\udcff'"),
        ({"display_name": "m\udcff"}, "job.display_name", "must be UTF-8, got 'm\\udcff'"),
        ({"request_id": 3}, "request_id", "must be text, got '3'"),
        ({"validate_only": "no"}, "validate_only", "must be true or false, got 'no'"),
        ({"labels": ["a=b"]}, "job.labels", "must be a table of texts, got \"['a=b']\""),
        ({"labels": {"a": 1}}, "job.labels", "must be a table of texts, got \"{'a': 1}\""),
        ({"max_steps": "many"}, "job.spec.training.max_steps", "must be a whole number that fits, got 'many'"),
        ({"density": "x"}, "job.spec.target_density", "must be a number, got 'x'"),
        ({"priority": 0.5}, "job.policy.priority", "must be a whole number that fits, got '0.5'"),
        ({"max_runtime": "2h"}, "job.policy.max_runtime", "must be a number of seconds, got '2h'"),
        ({"retention": float("nan")}, "job.policy.retention", "must be a number of seconds, got 'nan'"),
        ({"max_queue_time": 1e300}, "job.policy.max_queue_time", "must be a number of seconds, got '1e+300'"),
        (
            {"batch_size": 1 << 40},
            "job.spec.training.batch_size",
            f"must be a whole number that fits, got '{1 << 40}'",
        ),
    ],
)
def test_mistakes_that_the_client_can_see(client: Client, options: Any, field: str, description: str) -> None:
    with pytest.raises(mvprune.InvalidArgument) as caught:
        client.submit(**{"model": "m", "task": "sst2", "density": 0.5, **options})
    assert caught.value.violations == (mvprune.FieldViolation(field, description),)


def test_in_one_run_the_same_submit_is_the_same_request(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo
    options: dict[str, Any] = {"model": "m", "task": "sst2", "density": 0.5, "labels": {"a": "1", "b": "2"}}
    client.submit(**options, run_id="7")
    client.submit(**options | {"labels": {"b": "2", "a": "1"}}, run_id="7")
    client.submit(**options, run_id="8")
    client.submit(**options | {"density": 0.25}, run_id="7")
    client.submit(**options | {"max_runtime": 60}, run_id="7")
    client.submit(**options, validate_only=True, run_id="7")
    client.submit(**options)
    client.submit(**options)
    first, again, *others = [request.request_id for request in fake.requests["CreateJob"]]
    assert first == again
    assert len({first, *others}) == 7
    client.submit(**options, run_id="7", request_id="mine")
    assert fake.requests["CreateJob"][-1].request_id == "mine"


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


def test_a_baseline_is_a_job_one_that_is_trained_or_none(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo

    def sent(baseline: Any) -> mvprune.Baseline | None:
        return client.submit(model="m", task="sst2", density=0.5, baseline=baseline).spec.baseline

    assert sent("train") == mvprune.Baseline("", True, False)
    assert sent("none") == mvprune.Baseline("", False, True)
    assert sent("job:sst2-k3") == mvprune.Baseline("sst2-k3", False, False)
    earlier = client.submit(model="m", task="sst2", density=0.5)
    assert sent(earlier) == mvprune.Baseline(earlier.name, False, False)
    assert sent("") is None
    with pytest.raises(mvprune.InvalidArgument, match=r"baseline: must be job:ID, train or none, got 'bert'"):
        sent("bert")
