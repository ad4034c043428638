"""Summarization and translation: sources and targets in tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mvprune.data.held_out import hold_out
from mvprune.data.loading import Columns, DataError, TextPairs, load_files, load_rows, load_validation
from mvprune.data.tasks import get_task

TASK = get_task("summarization")
Write = Callable[[Path, str], Path]


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path: Path, columns: Columns = Columns()) -> TextPairs:  # noqa: B008 (immutable)
    found = load_validation(TASK, path, (), columns).validation
    assert isinstance(found, TextPairs)
    return found


@pytest.mark.parametrize("names", [("document", "summary"), ("Article", "highlights"), ("dialogue", "summary")])
def test_columns_are_found_by_name(names: tuple[str, str], tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.tsv", f"id\t{names[0]}\t{names[1]}\n1\ta long text \tshort\n")
    assert read(path) == TextPairs(("a long text",), (("short",),))


def test_named_columns_are_taken(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.csv", "en,ro\nhello,salut\n")
    found = load_files(get_task("translation"), path, path, Columns(source="en", target="ro"))
    assert found.train == TextPairs(("hello",), (("salut",),))
    assert found.columns == ("columns: source 'en', target 'ro'",)
    with pytest.raises(
        DataError, match="source_column must be one of the columns, by the first line: en, ro, got 'nl'"
    ):
        read(path, Columns(source="nl", target="ro"))
    with pytest.raises(DataError, match="source and target must be different columns"):
        read(path, Columns(source="ro", target="ro"))
    with pytest.raises(DataError, match="label_column must not be given for the task summarization"):
        read(path, Columns(label="ro"))


def test_a_list_of_sentences_is_one_source_and_a_list_of_targets_are_several(tmp_path: Path, write: Write) -> None:
    path = write(
        tmp_path / "a.jsonl",
        lines(
            {"source": ["One. ", "", " Two."], "target": ["a", "b"]},
            {"source": "Three.", "target": "c"},
        ),
    )
    assert read(path) == TextPairs(("One. Two.", "Three."), (("a", "b"), ("c",)))
    notes = load_files(TASK, path, path).notes
    assert notes[0] == "1 of 2 rows of a.jsonl have several targets: the first one is trained on"
    assert notes[1] == "2 of 2 validation rows are training rows too"


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"source": "a", "target": " "}, "'target' must not be blank"),
        ({"source": "", "target": "a"}, "'source' must not be blank"),
        ({"source": "a", "target": []}, "'target' must have at least one text, got an empty list"),
        ({"source": "a", "target": ["b", ""]}, "'target' must not be blank"),
        ({"source": ["", " "], "target": "a"}, "'source' must not be blank"),
        ({"source": ["b", 3], "target": "a"}, "'source' must be text, got 3"),
        ({"source": "a", "target": 3}, "'target' must be text, got 3"),
        ({"source": "a", "target": None}, "'target' must be text, got nothing"),
    ],
)
def test_each_row_has_a_source_and_a_target(row: dict[str, Any], rule: str, tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.jsonl", lines({"source": "x", "target": "y"}, row))
    with pytest.raises(DataError, match=rule) as refused:
        read(path)
    assert "line 2" in str(refused.value)


def test_rows_of_the_hub_are_read_by_the_tasks_columns() -> None:
    rows = [{"document": "a", "summary": "b", "id": "1"}]
    assert load_rows(get_task("xsum"), rows, rows, name="xsum").train == TextPairs(("a",), (("b",),))


def test_the_fingerprint_is_that_of_sources_and_targets(tmp_path: Path, write: Write) -> None:
    one, same, other = (
        write(tmp_path / name, lines({"source": "a", "target": target}))
        for name, target in (("1.jsonl", "b"), ("2.jsonl", "b"), ("3.jsonl", "c"))
    )
    found = [load_files(TASK, path, path).fingerprint for path in (one, same, other)]
    assert found[0] == found[1] != found[2]


def test_targets_are_held_out_with_their_sources() -> None:
    rows = [{"source": f"s{number}", "target": f"t{number}"} for number in range(6000)]
    found: Any = hold_out(load_rows(TASK, rows[:1], rows, name="rows"))
    for split in (found.validation, found.test.validation):
        assert len(split) == 3000
        assert all(
            target == (source.replace("s", "t"),) for source, target in zip(split.sources, split.targets, strict=True)
        )
