"""Data files that are checked before they are sent."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from mvprune.data import checking
from mvprune.data.checking import check_files
from mvprune.data.columns import Columns
from mvprune.data.tasks import get_task
from mvprune.data.textfiles import DataError


def check(task: str, train: Path, validation: Path | None = None) -> tuple[str, ...]:
    files = {"train": train} | ({"validation": validation} if validation else {})
    return check_files(get_task(task), files, Columns())


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_small_files_are_checked_as_the_server_checks_them(tmp_path: Path) -> None:
    train = write(tmp_path / "a.jsonl", {"text": "x", "label": "no"}, {"text": "y", "label": "yes"})
    other = write(tmp_path / "b.jsonl", {"text": "z", "label": "maybe"})
    assert check("text-classification", train, train)[0] == "columns: text 'text', label 'label' (found by name)"
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: the label must be one of no, yes .*got 'maybe'"):
        check("text-classification", train, other)


@pytest.mark.parametrize(
    ("task", "name", "content", "error"),
    [
        ("text-classification", "t.jsonl", '{"text": "a", "label": ["x", "y"]}\n', "'label' must be one label"),
        ("text-classification", "t.csv", "text,stars,score\na,1,2\n", "only one column must look like the label"),
        ("text-classification", "t.csv", "text,kind\na,1\n", "a column must be the label"),
        ("sst2", "t.tsv", "sentence\tlabel\na\t7\n", "the label must be one of"),
        ("text-regression", "t.csv", "text,label\na,high\n", "the label must be a number"),
        ("ner", "t.txt", "Ada B-PER\nis here O\n", "the row must have 2 columns, as the first row has, got 3"),
        ("squad", "t.jsonl", '{"id": "1", "question": "q", "context": "c", "answers": {}}\n', "answers with the lists"),
        ("masked-lm", "t.csv", "text\na,b\n", "the row must have 1 cells"),
    ],
)
def test_a_file_without_its_counterpart_is_checked_row_by_row(
    tmp_path: Path, task: str, name: str, content: str, error: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=error):
        check(task, tmp_path / name)


def test_of_large_tables_the_first_rows_are_read_and_the_answer_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "WHOLE_BYTES", 100)
    monkeypatch.setattr(checking, "FIRST_ROWS", 3)
    right = [{"text": "x", "label": "one"}] * 3  # sorted by label: that is no fault of the beginning
    train = write(tmp_path / "a.jsonl", *right, {"text": "x", "label": []})
    assert check("text-classification", train, train)[0] == (
        "train: the first 3 rows of a.jsonl were read here; all of it is checked after it has been sent"
    )
    with pytest.raises(DataError, match="line 3: 'label' must be one label"):
        check("text-classification", write(train, *right[:2], {"text": "x", "label": []}, *right), train)


def test_a_large_file_that_is_no_table_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "WHOLE_BYTES", 1 << 20)
    path = tmp_path / "t.txt"
    path.write_text("Ada B-PER\n" * 110_000)
    text = "t.txt is larger than 1 MiB, and was not read here; all of it is checked after it has been sent"
    assert check("ner", path) == (f"train: {text}",)


def test_parquet_is_not_read_without_pyarrow_and_the_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = tmp_path / "t.parquet", write(tmp_path / "v.jsonl", {"text": "x", "label": 0})
    parquet.write_table(pyarrow.table({"text": ["a"], "label": [[1, 2]]}), table)
    with pytest.raises(DataError, match="row 1: 'label' must be one label"):
        check("text-classification", table, rows)
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert check("text-classification", table, rows) == (
        "train: t.parquet was not read here, where pyarrow is not installed; all of it is checked after it has been "
        "sent",
        "validation: v.jsonl was read here without the other file; all of it is checked after it has been sent",
    )
    with pytest.raises(DataError, match=r"v\.jsonl, line 1: 'text' must not be blank"):
        check("text-classification", table, write(rows, {"text": " ", "label": 0}))
