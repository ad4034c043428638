"""Files of texts with any number of labels: lists, JSON, text with separators, and columns of 0 and 1."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mvprune.data.loading import Columns, DataError, load_files, load_rows, load_validation
from mvprune.data.tasks import get_task

TASK = get_task("multi-label-classification")
WANTED = [[0, 1], [], [1], [0]]
NAMES = ("good", "too long")
TEXTS = ("a b", "b c", "c d", "d e")


def lists(path: Path, labels: list[Any]) -> Path:
    path.write_text(
        "".join(json.dumps({"text": t, "labels": given}) + "\n" for t, given in zip(TEXTS, labels, strict=True))
    )
    return path


def table(path: Path, head: str, labels: list[str]) -> Path:
    mark = "," if path.suffix == ".csv" else "\t"
    rows = [f"{text}{mark}{label}" for text, label in zip(TEXTS, labels, strict=True)]
    path.write_text("\n".join([f"text{mark}{head}", *rows]) + "\n")
    return path


FILES = {
    "lists": ("a.jsonl", "", [["good", "too long"], [], ["too long"], ["good"]]),
    "JSON": ("a.tsv", "labels", ['["good", "too long"]', "[]", '["too long"]', '["good"]']),
    "quoted JSON": ("a.csv", "labels", ['"[""good"", ""too long""]"', "[]", '"[""too long""]"', '"[""good""]"']),
    "bars": ("a.tsv", "tags", ["good|too long", "", "too long", "good"]),
    "semicolons": ("a.tsv", "labels", ["too long; good", "", "too long", "good"]),
    "commas": ("a.csv", "labels", ['"good, too long"', "", "too long", "good"]),
    "columns": ("a.tsv", "good\ttoo long", ["1\t1", "0\t0", "0\t1", "1\t0"]),
    "true and false": ("a.csv", "good,id,too long", ["True,7,true", "false,8,false", "False,9,1", "1,3,0"]),
}


@pytest.mark.parametrize("case", FILES)
def test_labels_are_read_in_every_form(tmp_path: Path, case: str) -> None:
    name, head, labels = FILES[case]
    path = table(tmp_path / name, head, labels) if head else lists(tmp_path / name, labels)
    data: Any = load_files(TASK, path, path)
    assert data.labels == NAMES
    assert data.train.labels == data.validation.labels == WANTED
    assert data.train.texts == [*TEXTS]
    if head:
        renamed: Any = load_validation(TASK, path, NAMES if "good" in head else ("Too Long", "GOOD"))
        assert sum(map(len, renamed.validation.labels)) == 4
    again: Any = load_validation(TASK, path, NAMES)
    assert again.validation == data.validation
    same: Any = load_files(TASK, *[lists(tmp_path / "same.jsonl", FILES["lists"][2])] * 2)
    assert same.fingerprint == data.fingerprint


def test_pairs_of_texts_and_numbers_of_classes() -> None:
    rows = [{"text": "a", "text_pair": "b", "labels": [1, 0]}, {"text": "c", "text_pair": "d", "labels": []}]
    data: Any = load_rows(TASK, rows, rows, name="d", classes={"labels": ("x", "a", "z")})
    assert data.labels == ("x", "a", "z")
    assert data.train.labels == [[0, 1], []]
    assert data.train.pairs == ["b", "d"]
    assert TASK.kind.has_pairs(data)
    plain: Any = load_rows(TASK, rows, rows, name="d")
    assert plain.labels == ("0", "1")


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "good,is_long,toxic", ["1,1,0", "0,0,0", "0,1,1", "1,0,1"])
    data: Any = load_files(TASK, path, path, Columns(label="good, toxic"))
    assert data.labels == ("good", "toxic")
    assert data.train.labels == [[0], [], [1], [0, 1]]
    assert data.columns == ("columns: text 'text', labels of 0 and 1 good, toxic (found by name)",)


@pytest.mark.parametrize(
    ("head", "labels", "said"),
    [
        ("labels", ['["a"', "[]", "[]", "[]"], "line 2: 'labels' must be a list of labels, .* got broken JSON"),
        (
            "labels",
            ['["a", 1.5]', "[]", "[]", "[]"],
            "'labels' must have labels that are text and not blank, got 1.5",
        ),
        ("labels", ['["a", ""]', "[]", "[]", "[]"], "must have labels that are text and not blank"),
        ("labels", ["a", "a", "", ""], "the labels must be from 2 to 1,000, got 1; the task text-classification"),
        ("x\ty", ["1\t1", "0\t0", "0\t1", "0\tmany"], "must have the lists of labels, called labels, .*; name it"),
        ("words", ["some", "more", "and", "so on"], "a column must have the lists of labels, called labels"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, head: str, labels: list[str], said: str) -> None:
    path = table(tmp_path / "a.tsv", head, labels)
    with pytest.raises(DataError, match=said):
        load_files(TASK, path, path)


def test_a_label_that_the_training_data_has_not_is_refused(tmp_path: Path) -> None:
    train = table(tmp_path / "a.tsv", "labels", ["a|b", "", "b", "a"])
    other = table(tmp_path / "b.tsv", "labels", ["a|b", "", "b|c", "a"])
    with pytest.raises(DataError, match=r"line 4: the labels must be among a, b \(the labels of a.tsv\), got c"):
        load_files(TASK, train, other)
    columns = table(tmp_path / "c.tsv", "x\ty", ["1\t1", "0\t0", "0\t1", "1\t0"])
    fewer = table(tmp_path / "d.tsv", "x\tz", ["1\t1", "0\t0", "0\t1", "1\t0"])
    with pytest.raises(DataError, match=r"must have those of the labels, x, y, got none called y"):
        load_files(TASK, columns, fewer)
    (tmp_path / "e.jsonl").write_text('{"text": "a", "labels": null}\n')
    with pytest.raises(DataError, match=r"must be a list of labels, .* got nothing; write \[\] for no label"):
        load_files(TASK, train, tmp_path / "e.jsonl")


def test_a_late_row_of_a_column_of_0_and_1_is_an_error(tmp_path: Path) -> None:
    rows = [{"text": f"t{n}", "a": n % 2, "b": 1 - n % 2} for n in range(1200)] + [{"text": "t", "a": 2, "b": 0}]
    with pytest.raises(DataError, match=r"row 1,?201: 'a' must be 0 or 1, got 2"):
        load_rows(TASK, rows, rows, name="d")


def test_labels_of_every_row_and_shared_rows_are_noted(tmp_path: Path) -> None:
    path = table(tmp_path / "a.tsv", "labels", ["a|b", "a", "a|b", "a"])
    data = load_files(TASK, path, path)
    assert "every row of a.tsv has the label a: nothing is learned of it" in data.notes
    assert any("validation rows are training rows too" in note for note in data.notes)


def test_labels_to_measure_by_must_be_there() -> None:
    rows = [
        {"text": text, "labels": labels} for text, labels in zip(TEXTS, [["a"], ["b"], [], ["a", "b"]], strict=True)
    ]
    none = [row | {"labels": []} for row in rows]
    with pytest.raises(DataError, match=r"validation.*: some row to evaluate on must have a label, got none in 4 rows"):
        load_rows(TASK, rows, none, name="d")
    every: Any = load_rows(TASK, rows, rows[3:], name="d")
    problems = TASK.kind.option_problems
    assert not [*problems(every, {})]
    for metric, said in (("roc_auc", 1), ("average_precision", 1), ("f1_macro", 0)):
        measured = replace(every, task=TASK.measured_by(metric))
        found = [*problems(measured, {"metric": metric})]
        assert len(found) == said
        if found:
            rule = "must be another metric where each label has all or none of the rows to evaluate on"
            assert found == [("metric", f"{rule}, got {metric}; take f1_micro, or add other rows")]
