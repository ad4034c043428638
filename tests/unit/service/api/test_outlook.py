"""What the server tells of a job before it runs: its phases, how long it is, which data was read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny, server_path

from mvprune.data.tasks import get_task
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service.api.checks.specs import Checker


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        (
            {"training": {"max_steps": 10}},
            ["10 steps of 32 examples are likely too few for the density 0.1: about 50 "],
        ),
        ({"training": {"max_steps": 200}}, ["200 steps of 32 examples likely cost a model that is fine-tuned already"]),
        ({"training": {"max_steps": 200}, "model": "bert-base-uncased"}, []),
        ({"training": {"max_steps": 400}}, []),
        ({"training": {"max_steps": 10}, "obert": {}}, ["10 steps of 32 examples are likely too few"]),
        ({"training": {"max_steps": 10}, "one_shot_magnitude": {}}, []),
        ({"training": {"max_steps": 10}, "magnitude": {"schedule": {"shape": "ONE_SHOT"}}}, []),
        ({"training": {"epochs": 0.5}}, ["4 steps of 32 examples are likely too few for the density 0.1"]),
        ({"training": {"preset": "PAPER"}}, ["preset paper: ", "steps of 32 examples likely cost a model"]),
    ],
)
def test_the_answer_says_how_long_the_run_is(tiny: Tiny, spec: dict[str, Any], notes: list[str]) -> None:
    files = {"train": server_path(tiny.train), "validation": server_path(tiny.validation)}
    values = {"model": "tiny-bert", "task": "text-classification", "dataset": files, "target_density": 0.1}
    method = {} if spec.keys() - {"training", "model"} else {"movement": {}}
    job = job_pb2.Job(spec=job_pb2.CompressionSpec(**(values | method | spec)))
    checker = Checker(job, "", Roots(models=tiny.models, allowed=(tiny.train.parent,)))
    checker.check()
    found = [note for note in checker.notes if "steps of" in note]
    assert len(found) == len(notes)
    assert all(text in note for text, note in zip(notes, found, strict=True))


@pytest.mark.parametrize(
    ("spec", "phases"),
    [
        ({}, "dense evaluating teaching pruning evaluating"),
        ({"target_density": 1}, "pruning evaluating"),
        (
            {
                "target_density": 1,
                "keep_fine_tuned": True,
                "start_from": "job:a",
                "magnitude": {},
                "teacher": {"none": True},
            },
            "evaluating",
        ),
        ({"teacher": {"none": True}}, "dense evaluating pruning evaluating"),
        ({"baseline": {"none": True}, "teacher": {"none": True}}, "pruning evaluating"),
        ({"target_density": 1, "teacher": {"alpha": 0.5}}, "dense teaching pruning evaluating"),
        ({"baseline": {"train": True}}, "teaching pruning evaluating"),
        ({"baseline": {"train": True}, "teacher": {"none": True}}, "pruning evaluating"),
        ({"teacher": {"train": True}}, "teaching pruning evaluating"),
        ({"teacher": {"model": "tiny-bert"}}, "teaching dense evaluating pruning evaluating"),
    ],
)
def test_the_phases_are_those_that_the_worker_will_have(tiny: Tiny, spec: dict[str, Any], phases: str) -> None:
    files = {"train": server_path(tiny.train), "validation": server_path(tiny.validation)}
    values = {"model": "tiny-bert", "task": "text-classification", "dataset": files, "target_density": 0.1}
    training = {"epochs": 2, "batch_size": 8, "evaluate_every": 20}
    job = job_pb2.Job(spec=job_pb2.CompressionSpec(**(values | {"movement": {}, "training": training} | spec)))
    checker = Checker(job, "", Roots(models=tiny.models, allowed=(tiny.train.parent,)))
    checker.check()
    assert [phase.name for phase in checker.outlook.phases] == [*phases.split(), "uploading"]
    train, validation, steps = 256, 64, 64
    for phase in checker.outlook.phases:
        is_training = phase.name in ("dense", "pruning")
        examples = {"evaluating": validation, "teaching": train, "uploading": 0}
        assert phase.steps == (steps if is_training else 0)
        assert phase.examples == (steps * 8 if is_training else examples[phase.name])
        assert phase.evaluations == (4 if is_training else 0)
    assert checker.outlook.epochs == 0


def test_phases_have_epochs_where_the_rows_are_not_known() -> None:
    spec: dict[str, Any] = {"model": "bert-base-uncased", "task": "sst2", "target_density": 0.1, "movement": {}}
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, get_task("sst2").epochs),
        ({"epochs": 0.5}, 0.5),
        ({"max_steps": 9}, 0),
    ]
    for training, epochs in cases:
        job = job_pb2.Job(spec=job_pb2.CompressionSpec(**(spec | {"training": training})))
        checker = Checker(job, "", Roots())
        checker.check()
        assert checker.outlook.epochs == epochs
        assert {phase.steps for phase in checker.outlook.phases} <= {0, 9}


@pytest.mark.parametrize(
    ("teacher", "phases"),
    [
        ({}, ["dense", "evaluating", "writing", "teaching", "pruning", "evaluating"]),
        ({"alpha": 0}, ["dense", "evaluating", "writing", "pruning", "evaluating"]),
        ({"model": "org/t"}, ["writing", "teaching", "dense", "evaluating", "pruning", "evaluating"]),
    ],
)
def test_a_teacher_writes_before_it_predicts(teacher: dict[str, Any], phases: list[str]) -> None:
    spec: dict[str, Any] = {"model": "facebook/bart-base", "task": "xsum", "target_density": 0.1, "movement": {}}
    spec |= {"teacher": {"writes_targets": True, **teacher}, "training": {"max_steps": 10, "batch_size": 4}}
    checker = Checker(job_pb2.Job(spec=job_pb2.CompressionSpec(**spec)), "", Roots())
    checker.check()
    assert [phase.name for phase in checker.outlook.phases] == [*phases, "uploading"]


def checked(
    tiny: Tiny, dataset: dict[str, str], data: Path | None = None, task: str = "text-classification"
) -> Checker:
    spec = job_pb2.CompressionSpec(model="tiny-bert", task=task, dataset=dataset, target_density=0.1, movement={})
    checker = Checker(job_pb2.Job(spec=spec), "", Roots(models=tiny.models, data=data, allowed=(tiny.train.parent,)))
    checker.check()
    return checker


def test_the_columns_that_are_read_are_told(tiny: Tiny, tmp_path: Path) -> None:
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(f"review,score,mood\n{name} a,1,us\n{name} b,2,US\n")
    near = replace(tiny, train=tmp_path / "train.csv")
    files = {"train": server_path(near.train), "validation": server_path(tmp_path / "dev.csv")}
    for _ in range(2):  # the second time nothing is read
        checker = checked(near, {**files, "label_column": "mood"})
        assert not checker.violations
        assert checker.notes[:2] == (
            "columns: text 'review', label 'mood' (found by name)",
            "the labels US, us differ only in case, '-' or '_', and are read as 2 classes",
        )
        assert ["steps of" in note for note in checker.notes[2:]] == [True]


def test_the_answer_says_which_data_only_the_worker_opens(tiny: Tiny) -> None:
    def notes(dataset: dict[str, str]) -> tuple[str, ...]:
        spec = job_pb2.CompressionSpec(
            model="tiny-bert", task="text-classification", dataset=dataset, target_density=0.1, movement={}
        )
        roots = Roots(models=tiny.models, allowed=(tiny.train.parent,), buckets=("s3://ours",))
        checker = Checker(job_pb2.Job(spec=spec), "", roots)
        checker.check()
        assert not checker.violations
        return checker.notes

    here, there = server_path(tiny.train), "s3://ours/dev.csv"
    assert notes({"train": here, "validation": there}) == (
        f"not opened here: {there}; the worker checks it",
        f"not opened here: {here}; the worker checks it",
    )
    assert notes({"hub_id": "stanfordnlp/imdb"}) == (
        "not opened here: the data set stanfordnlp/imdb of the Hub; the worker checks it",
    )


def test_named_columns_are_those_of_a_tasks_own_files_too(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "SST-2"
    folder.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\tmine\na\t1\t0\nb\t0\t1\n")
    near = replace(tiny, train=folder / "train.tsv")
    checker = checked(near, {"label_column": "mine", "text_column": "sentence"}, tmp_path / "data", "sst2")
    assert checker.notes[0] == "columns: text 'sentence', label 'mine'"
    assert (
        "label_column must be one of the columns"
        in checked(near, {"label_column": "other"}, tmp_path / "data", "sst2").violations[0].description
    )
