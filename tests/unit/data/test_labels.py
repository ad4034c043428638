"""Labels: of a task, discovered, and of a regression."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from mvprune.data.kinds.classification.labels import MAX_CLASSES
from mvprune.data.loading import DataError, load_rows
from mvprune.data.tasks import get_task

SST2 = get_task("sst2")
STSB = get_task("stsb")
OWN = get_task("text-classification")
GOOD = "sentence\tlabel\ngood\t1\nbad\t0\n"


@pytest.mark.parametrize("spelled", ["1", 1, True, 1.0, "1.0", " 1 ", "positive"])
def test_one_label_in_its_spellings(spelled: object, load):
    rows = [{"sentence": "x", "label": label} for label in (spelled, 0)]
    data = load("\n".join(map(json.dumps, rows)), name="train.jsonl")
    assert data.train.labels == [1, 0]
    assert all(type(label) is int for label in data.train.labels)


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("7", "the label must be one of negative, positive, or 0 to 1, got 7"),
        ("-1", "or 0 to 1, got -1"),
        ("2", "or 0 to 1, got 2"),
        ("0.5", "or 0 to 1, got 0.5"),
        ("good", "the label must be one of negative, positive, or 0 to 1, got 'good'"),
        ("01", "or 0 to 1, got '01'"),
        ("9" * 30, "or 0 to 1, got '9"),
    ],
)
def test_a_label_outside_the_tasks_own(label: str, found: str, tmp_path: Path, refused):
    error = refused(f"{GOOD}fine\t{label}\n")
    assert error.line == 4
    assert found in str(error)
    error = refused(GOOD, validation=f"{GOOD}fine\t{label}\n")
    assert error.path == tmp_path / "validation.tsv"
    assert error.line == 4


def own(labels: list) -> str:
    return "\n".join(json.dumps({"text": "x", "label": label}) for label in labels)


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        ([0, 1, 2, 1], ("0", "1", "2"), [0, 1, 2, 1]),
        ([2, 1, 3], ("1", "2", "3"), [1, 0, 2]),
        (["1", "0"], ("0", "1"), [1, 0]),
        ([True, False], ("false", "true"), [1, 0]),
        (["Ja", "ja"], ("Ja", "ja"), [0, 1]),
        (
            ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1"],
            (*"123456789", "10"),
            [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        ),
    ],
)
def test_labels_are_discovered(labels: list, names: tuple, numbers: list, load):
    data = load(own(labels), task=OWN, name="train.jsonl")
    assert data.labels == names
    assert data.train.labels == numbers


@pytest.mark.parametrize(
    ("labels", "line", "found"),
    [
        ([0, 1, 7, 0], 3, "integers must run from 0 or 1 without a gap, got 7"),
        ([1, 0, -1], 3, "from 0 or 1 without a gap, got -1"),
        ([5, 6], 1, "without a gap, got 5"),
        ([1, 2, 4], 3, "without a gap, got 4"),
        ([0, 10**300], 2, "without a gap, got 1"),
        (["a", "b", 1], 3, "the labels must be all integers or all names, got 1, and 'a' in line 1"),
        ([0, 1, "n/a"], 3, "all integers or all names, got 'n/a', and 0 in line 1"),
        ([0, 0.5], 2, "the label must be an integer or a name, got 0.5; the task text-regression takes numbers"),
        (["3.80", "5.0"], 1, "must be an integer or a name, got 3.8"),
        (["0.0", "-.5"], 2, "must be an integer or a name, got -0.5"),
        ([0, float("nan")], 2, "must be an integer or a name, got nan"),
        ([0, 1, None], 3, "'label' must have a value, got nothing; remove the row, or fill in its label"),
    ],
)
def test_labels_that_cannot_be_discovered(labels: list, line: int, found: str, refused):
    error = refused(own(labels), task=OWN, name="train.jsonl")
    assert error.line == line
    assert found in str(error)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([Decimal("1"), Decimal("0.00"), Decimal(2)], ("0", "1", "2")),
        (np.array([1, 0, 2], dtype=np.int16), ("0", "1", "2")),
        (np.array([1, 2], dtype=np.float32), ("1", "2")),
    ],
    ids=["decimal", "int16", "float32"],
)
def test_numbers_of_other_types_are_numbers(labels: list, names: tuple):
    rows = [{"text": "x", "label": label} for label in labels]
    assert load_rows(OWN, rows, rows, name="d").labels == names
    with pytest.raises(DataError, match=r"row 3: the label must be an integer or a name, got 0\.5"):
        load_rows(OWN, [*rows[:2], {"text": "x", "label": Decimal("0.5")}], rows, name="d")


def test_more_classes_than_allowed(load, refused):
    most = list(range(MAX_CLASSES))
    assert len(load(own(most), task=OWN, name="train.jsonl").labels) == MAX_CLASSES
    for labels in ([*most, MAX_CLASSES], [f"x{label}" for label in [*most, MAX_CLASSES]]):
        error = refused(own(labels), task=OWN, name="train.jsonl")
        assert error.line == MAX_CLASSES + 1
        assert "there must be at most 1,000 different labels, got 1,001" in str(error)


@pytest.mark.parametrize(
    ("train", "other", "found"),
    [
        (["a", "b"], "c", "the label must be one of a, b (the labels of"),
        ([0, 1], 2, "the label must be one of 0, 1 (the labels of"),
        ([1, 2], 0, "the label must be one of 1, 2 (the labels of"),
        ([0, 1], "a", "the label must be one of 0, 1 (the labels of"),
    ],
)
def test_a_validation_label_that_is_not_in_train(train: list, other: object, found: str, tmp_path: Path, refused):
    error = refused(own(train), task=OWN, name="train.jsonl", validation=own([train[0], other]))
    assert error.path == tmp_path / "validation.jsonl"
    assert error.line == 2
    assert found in str(error)


@pytest.mark.parametrize(("task", "label"), [(SST2, "1"), (OWN, "a"), (STSB, "2.5")])
def test_one_label_alone_cannot_be_learned(task, label: str, refused):
    header = "sentence1\tsentence2" if task is STSB else "sentence\tother"
    content = f"{header}\tlabel\na\tb\t{label}\nd\te\t{label}\n"
    assert "the rows must have at least two different labels, got one in all 2" in str(refused(content, task=task))


def regression(labels: list) -> str:
    return "\n".join(json.dumps({"sentence1": "x", "sentence2": "y", "label": label}) for label in labels)


def test_regression_takes_numbers(load):
    data = load(regression([1, 2.5, "3", "4.25", "-1e-3"]), task=STSB, name="train.jsonl")
    assert data.train.labels == [1.0, 2.5, 3.0, 4.25, -0.001]
    assert all(type(label) is float for label in data.train.labels)
    assert data.labels == ()


@pytest.mark.parametrize(
    "label", ["nan", "inf", "-Infinity", "high", float("nan"), float("inf"), 10**400, 1e16, "-1e39"]
)
def test_regression_refuses_others(label: object, refused):
    error = refused(regression([1, 2, label]), task=STSB, name="train.jsonl")
    assert error.line == 3
    assert "the label must be a number from -1e+15 to 1e+15" in str(error)


def test_a_correlation_needs_two_values_to_validate_on(tmp_path: Path, refused):
    error = refused(regression([1, 2]), task=STSB, name="train.jsonl", validation=regression([3]))
    assert error.path == tmp_path / "validation.jsonl"
    assert "at least two different labels, got one in all 1" in str(error)


def test_question_answering_takes_no_tables(refused):
    assert "the file must be JSON in SQuAD's format" in str(refused(GOOD, task=get_task("squad")))
