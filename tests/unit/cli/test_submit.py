"""mvpctl submit: options and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tests.unit.client.scripted_server import (
    SIZE,
    SUBMIT,
    Fake,
    Mvpctl,
    Outcome,
    always,
    echo,
    job,
    refuse,
)

from mvprune.v1 import job_pb2


@pytest.mark.parametrize("option", ["--density", "--sparsity"])
def test_submit_answers_in_words_and_counts(fake: Fake, mvpctl: Mvpctl, option: str) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED", model_size=SIZE))
    outcome = mvpctl(*SUBMIT, option, "0.03")
    note = "note: --sparsity 0.03 keeps 3.0 % of the prunable weights, as in the paper; --density is the plain name\n"
    text = "job j1 submitted: keeps 3.0 % of 84.9 M prunable weights (2.5 M)\n"
    assert outcome == Outcome(0, text, note if option == "--sparsity" else "")
    request = fake.asked("CreateJob")
    assert request.job.spec.target_density == 0.03
    assert request.job.spec.WhichOneof("method") == "auto"


@pytest.mark.parametrize("options", [(), ("--validate-only",)])
def test_submit_says_what_the_job_will_do(fake: Fake, mvpctl: Mvpctl, options: tuple[str, ...]) -> None:
    phase, answered = job_pb2.JobEstimate.Phase, job("QUEUED")
    answered.estimate.phases.extend(
        [
            phase(name="dense", steps=3_000, examples=96_000),
            phase(name="evaluating", examples=1),
            phase(name="teaching"),
            phase(name="pruning", steps=3_000, evaluations=6),
            phase(name="uploading"),
        ]
    )
    answered.estimate.text = "about 3 min of work"
    fake.answers["CreateJob"] = always(answered)
    outcome = mvpctl(*SUBMIT, "--density", "0.03", *options)
    assert outcome.out.splitlines()[1:] == [
        "phases: dense 3,000 steps, evaluating 1 example, teaching, pruning 3,000 steps with 6 evaluations, uploading; "
        "this length is the default: max_steps, epochs or preset changes it; the dense model is trained first, unless "
        "the model is fine-tuned for the task already",
        "time: about 3 min of work",
    ]
    assert mvpctl(*SUBMIT, "--density", "0.03", *options, "-o", "json").json["estimate"]["phases"][0]["steps"] == 3_000


@pytest.mark.parametrize(("given", "words"), [({}, "3 epochs or more"), ({"epochs": 1, "patience": 2}, "0.5 epochs")])
def test_submit_says_epochs_where_steps_are_not_known(
    fake: Fake, mvpctl: Mvpctl, given: dict[str, int], words: str
) -> None:
    answered = job("QUEUED")
    answered.spec.training.MergeFrom(job_pb2.Training(**given))  # type: ignore[arg-type]
    answered.estimate.phases.add(name="pruning")
    answered.estimate.epochs = 0.5 if given else 3
    fake.answers["CreateJob"] = always(answered)
    ends = "; this length is the default: max_steps, epochs or preset changes it"
    ends = "; early stopping may end a training sooner" if given else ends
    assert mvpctl(*SUBMIT, "--density", "0.03").out.splitlines()[1] == f"phases: pruning {words}{ends}"


def test_submit_where_the_model_cannot_be_counted(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    assert mvpctl(*SUBMIT, "--density", "0.03").out == "job j1 submitted: keeps 3.0 % of the prunable weights\n"


def test_submit_needs_no_density_beside_a_pattern(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    assert mvpctl(*SUBMIT, "--pattern", "2:4").code == 0
    assert fake.asked("CreateJob").job.spec.target_density == 0, "the server sets it"


def test_submit_says_whose_weights_a_density_counts(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateJob"] = echo
    outcome = mvpctl(*SUBMIT, "--density", "0.5", "--structure", "heads_and_units")
    assert outcome.out.endswith("submitted: keeps 50.0 % of the weights of heads and units\n")


def test_submit_sends_its_options(fake: Fake, mvpctl: Mvpctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    monkeypatch.chdir(tmp_path)
    line = """
        submit --model org/m --revision r --density 0.1
        --train server:/t.jsonl --validation s3://b/v.tsv --text-column a --text-pair-column b --label-column c
        --source-column d --target-column e --max-target-length 40
        --set source_prefix=tl;dr: --set source_language=en_XX
        --set target_language=ro_RO --set num_beams=4 --set length_penalty=0.5 --set no_repeat_ngram_size=3
        --set evaluated_examples=50 --metric f1_macro --set class_weights=1,2 --set threshold=0.4
        --method movement --pruning-start 0.05 --cooldown 0.3 --set score_learning_rate=0.02
        --shape linear --selection global --set initial_scores=magnitude
        --include *.attention.* --include *.dense --exclude *.0.* --pattern 1:10 --structure heads_and_units
        --structure-density 0.5 --set structure_block_size=16 --set structure_fill=true --allow-density-miss
        --weight-dtype int8 --embedding-dtype bf16 --trim-vocabulary --trim-positions
        --target-bytes 10MB --delta
        --teacher org/t --set teacher_revision=v1 --set temperature=3 --set alpha=0.5 --set hidden_states=2
        --set teacher_writes_targets=true
        --max-steps 9 --epochs 1.5 --batch-size 4 --learning-rate 1e-5 --set weight_decay=0.01 --max-length 32 --seed 5
        --accumulation-steps 2 --precision bf16 --set train_embeddings=true --set compile=true
        --set gradient_checkpointing=true --set deterministic=true
        --set dropout=true --set lr_density_exponent=0.5 --evaluate-every 3 --patience 2 --keep-best
        --set best_metric=f1
        --gpus 0 --cpus 2 --memory 8GiB --workers 3 --max-attempts 1
        --priority -5 --max-runtime 2h --set max_queue_time=7d --set start_timeout=90s --set checkpoint_interval=1.5m
        --retention 30d --gate f1>=80 --gate bytes<=10MB --strict-gates
        --label team=search --label a=b=c --name mine --request-id once --validate-only
    """
    assert mvpctl(*line.split()).out == "valid: keeps 3.0 % of the prunable weights\n"
    request = fake.asked("CreateJob")
    assert (request.request_id, request.validate_only) == ("once", True)
    assert mvpctl(*line.split(), "--quiet").out == "", "there is no job to name"
    assert request.job.display_name == "mine"
    assert dict(request.job.labels) == {"team": "search", "a": "b=c"}
    assert request.job.spec == job_pb2.CompressionSpec(
        model="org/m",
        model_revision="r",
        task="text-classification",
        dataset=job_pb2.Dataset(
            train="server:/t.jsonl",
            validation="s3://b/v.tsv",
            text_column="a",
            text_pair_column="b",
            label_column="c",
            source_column="d",
            target_column="e",
        ),
        max_target_length=40,
        source_prefix="tl;dr:",
        source_language="en_XX",
        target_language="ro_RO",
        num_beams=4,
        length_penalty=0.5,
        no_repeat_ngram_size=3,
        evaluated_examples=50,
        metric="f1_macro",
        class_weights="1,2",
        threshold=0.4,
        movement=job_pb2.MovementPruning(
            schedule=job_pb2.Schedule(pruning_start=0.05, cooldown=0.3, shape="LINEAR"),
            score_learning_rate=0.02,
            selection="GLOBAL",
            initial_scores="MAGNITUDE",
        ),
        include=["*.attention.*", "*.dense"],
        exclude=["*.0.*"],
        pattern="1:10",
        structure="HEADS_AND_UNITS",
        structure_density=0.5,
        structure_block_size=16,
        structure_fill=True,
        allow_density_miss=True,
        weight_dtype="INT8",
        embedding_dtype="BF16",
        trim_vocabulary=True,
        trim_positions=True,
        target_bytes=10_000_000,
        delta=True,
        target_density=0.1,
        teacher=job_pb2.Teacher(
            model="org/t", revision="v1", temperature=3, alpha=0.5, hidden_states=2, writes_targets=True
        ),
        seed=5,
        training=job_pb2.Training(
            max_steps=9,
            epochs=1.5,
            batch_size=4,
            learning_rate=1e-5,
            weight_decay=0.01,
            max_length=32,
            accumulation_steps=2,
            precision="BF16",
            train_embeddings=True,
            dropout=True,
            compile=True,
            gradient_checkpointing=True,
            deterministic=True,
            evaluate_every=3,
            patience=2,
            best_metric="f1",
            keep_best=True,
            lr_density_exponent=0.5,
        ),
    )
    assert request.job.policy == job_pb2.ExecutionPolicy(
        resources=job_pb2.Resources(gpus=0, cpus=2, memory_bytes=8 << 30, workers=3),
        max_attempts=1,
        start_timeout=Duration(seconds=90),
        priority=-5,
        max_runtime=Duration(seconds=7200),
        max_queue_time=Duration(seconds=7 * 86_400),
        retention=Duration(seconds=30 * 86_400),
        checkpoint_interval=Duration(seconds=90),
        gates=[
            job_pb2.Gate(metric="eval/f1", min=0.8, fail_job=True),
            job_pb2.Gate(metric="bytes", max=10_000_000, fail_job=True),
        ],
    )


def test_options_that_are_not_given_stay_unset(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    mvpctl(*SUBMIT, "--density", "0.1")
    expected = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", auto={}, target_density=0.1)
    assert fake.asked("CreateJob").job.spec == expected
    assert fake.asked("CreateJob").job.policy == job_pb2.ExecutionPolicy()


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("soft_movement", "--set penalty=10 --set initial_scores=zero", {"penalty": 10, "initial_scores": "ZERO"}),
        ("l0", "--set penalty=10 --set score_learning_rate=0.1", {"penalty": 10, "score_learning_rate": 0.1}),
        ("one_shot_magnitude", "--set when=before --selection local", {"when": "BEFORE", "selection": "LOCAL"}),
        ("random", "--shape one_shot --pruning-start 1", {"schedule": {"shape": "ONE_SHOT", "pruning_start": 1}}),
    ],
)
def test_options_of_a_method(fake: Fake, mvpctl: Mvpctl, method: str, options: str, expected: dict[str, Any]) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    assert mvpctl(*SUBMIT, "--density", "0.1", "--method", method, *options.split()).code == 0
    spec = fake.asked("CreateJob").job.spec
    assert spec.WhichOneof("method") == method
    assert getattr(spec, method) == type(getattr(spec, method))(**expected)


@pytest.mark.parametrize(
    ("given", "teacher"),
    [
        ("train", {"train": True}),
        ("job:sst2-k3", {"job": "sst2-k3"}),
        ("org/big", {"model": "org/big"}),
        ("none", {"none": True}),
    ],
)
def test_who_may_teach(fake: Fake, mvpctl: Mvpctl, given: str, teacher: dict[str, Any]) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    assert mvpctl(*SUBMIT, "--density", "0.1", "--teacher", given).code == 0
    assert fake.asked("CreateJob").job.spec.teacher == job_pb2.Teacher(**teacher)


def test_the_dense_baseline_teaches_as_is_said(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    assert mvpctl(*SUBMIT, "--density", "0.1", "--set", "alpha=0.5").code == 0
    assert fake.asked("CreateJob").job.spec.teacher == job_pb2.Teacher(alpha=0.5)


def test_each_use_of_sparsity_says_what_is_kept(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    told = "note: --sparsity 0.97 keeps 97.0 % of the prunable weights, as in the paper; --density is the plain name\n"
    outcome = mvpctl(*SUBMIT, "--sparsity", "0.97", "-o", "json")
    assert (outcome.code, outcome.err) == (0, told)
    assert json.loads(outcome.out)["spec"]["target_density"] == 0.03, "stdout has only the answer"
    assert mvpctl(*SUBMIT, "--sparsity", "0.97", "--quiet").err == told
    file = tmp_path / "jobs.yaml"
    file.write_text("seed: 1\n---\nseed: 2\n")
    assert mvpctl(*SUBMIT, "-f", str(file), "--sparsity", "0.97").err == told, "once for all jobs of a file"
    assert mvpctl(*SUBMIT, "--density", "0.97").err == ""


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--density", "0.1", "--sparsity", "0.1"], "--density, --sparsity must be one of the two, got both"),
        ([], "--density, --sparsity must be one of the two, got neither"),
        (
            ["--mask-from", "m", "--density", "0.1", "--sparsity", "1"],
            "--density, --sparsity must be one of the two, got both",
        ),
        (["--density", "three"], "--density must be a number, got 'three'"),
        (["--density", "0.1", "--max-steps", "1.5"], "--max-steps must be a whole number, got '1.5'"),
        (["--density", "0.1", "--memory", "8 apples"], "--memory must be a number with a unit"),
        (["--density", "0.1", "--priority", "high"], "--priority must be a whole number, got 'high'"),
        (["--density", "0.1", "--max-runtime", "60"], "--max-runtime must be a number with s, m, h or d, "),
        (["--density", "0.1", "--retention", "-1d"], "--retention: expected one argument"),
        (["--density", "0.1", "--label", "team"], "--label must be KEY=VALUE, got 'team'"),
        (["--density", "0.1", "--timeout", "5"], "--timeout: is for waiting"),
        (["--density", "0.1", "-o", "xml"], "-o/--output must be one of text, json, yaml, got 'xml'"),
        (["--density", "0.1", "--frobnicate"], "unrecognized arguments: --frobnicate"),
        (
            ["--density", "0.1", "--method", "l1"],
            "job.spec.method (--method): must be one of movement, soft_movement, l0, ",
        ),
        (
            ["--density", "0.1", "--method", "magnitude", "--set", "score_learning_rate=1"],
            "job.spec.magnitude.score_learning_rate (--set score_learning_rate): must be unset for magnitude, which",
        ),
    ],
)
def test_mistakes_in_the_command_line(fake: Fake, mvpctl: Mvpctl, argv: list[str], error: str) -> None:
    outcome = mvpctl(*SUBMIT, *argv)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(f"error: {error}")
    assert "CreateJob" not in fake.requests


@pytest.mark.parametrize("density", ["0", "1.5", "-1"])
def test_a_density_is_judged_by_the_server(fake: Fake, mvpctl: Mvpctl, density: str) -> None:
    violations = {
        "job.spec.target_density": f"got {density!r}; allowed: more than 0, up to 1",
        "job.spec.teacher.job": "no",
        "job.spec.teacher.revision": "no",
        "job.spec.training.keep_best": "no",
        "job.spec.dataset.hub_id": "no",
        "job.policy.resources.memory_bytes": "too much",
        "job.policy.max_queue_time": "too long",
        "job.labels.x": "too long",
        "parent": "odd",
        "job_id": "odd",
    }
    fake.answers["CreateJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations=violations
    )
    outcome = mvpctl(*SUBMIT, "--density", density)
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        f"error: job.spec.target_density (--density): got {density!r}; allowed: more than 0, up to 1",
        "error: job.spec.teacher.job (--teacher): no",
        "error: job.spec.teacher.revision (--set teacher_revision): no",
        "error: job.spec.training.keep_best (--keep-best): no",
        "error: job.spec.dataset.hub_id (--dataset): no",
        "error: job.policy.resources.memory_bytes (--memory): too much",
        "error: job.policy.max_queue_time (--set max_queue_time): too long",
        "error: job.labels.x (--label): too long",
        "error: parent (--project): odd",
        "error: job_id: odd",
    ]


def test_submit_says_what_was_guessed(fake: Fake, mvpctl: Mvpctl) -> None:
    noted = job("QUEUED")
    noted.notes.extend(["columns: text 'a', label 'b' (found by name)", "two\x1b[2J"])
    fake.answers["CreateJob"] = always(noted)
    lines = mvpctl(*SUBMIT, "--density", "0.03").out.splitlines()
    assert lines[1:] == ["note: columns: text 'a', label 'b' (found by name)", "note: two [2J"]
    assert mvpctl(*SUBMIT, "--density", "0.03", "-o", "json").json["notes"][0].startswith("columns: text 'a'")
