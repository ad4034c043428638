"""Files that cannot be used: each is answered with what is wrong and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mvprune.data import tables, textfiles
from mvprune.data.loading import DataError, load_files
from mvprune.data.tasks import get_task

SST2 = get_task("sst2")
GOOD = "sentence\tlabel\ngood\t1\nbad\t0\n"


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl", "train.parquet"])
def test_an_empty_file(name: str, refused):
    assert "the file must not be empty" in str(refused("", name=name))


@pytest.mark.parametrize("content", ["\n\n", "\ufeff", "\r\n"])
@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl"])
def test_a_file_of_nothing(content: str, name: str, refused):
    assert str(refused(content, name=name)).endswith(
        ("the file must not be empty", "the rows must be at least 1, got 0")
    )


def test_a_header_alone(refused):
    assert "the rows must be at least 2, got 0" in str(refused("sentence\tlabel\n"))
    assert "the rows must be at least 1, got 0" in str(refused(GOOD, validation="sentence\tlabel\n"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("train.tsv", "sentence\tlabel\ngood\t1\n"), ("train.jsonl", '{"sentence": "good", "label": 1}')],
)
def test_one_row(name: str, content: str, tmp_path: Path, refused):
    error = refused(content, name=name)
    assert "the rows must be at least 2, got 1" in str(error)
    assert error.path == tmp_path / name
    assert error.line is None


def test_one_row_is_enough_to_validate(load):
    assert len(load(GOOD, validation="sentence\tlabel\ngood\t1\n").validation) == 1


@pytest.mark.parametrize("name", ["train.txt", "train", "train.parquet.gz", "train.pkl", "train.gz"])
def test_an_unknown_suffix(name: str, refused):
    assert "the suffix must be .csv, .tsv, .jsonl, .ndjson, .json" in str(refused(GOOD, name=name))


def test_a_missing_file_a_folder_a_pipe_and_a_long_name(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.tsv")
    for name, found in [
        ("missing.tsv", "No such file"),
        ("", "must be that of a file"),
        ("pipe.tsv", "must be that of a file"),
        ("a" * 300, "File name too long"),
        ("a\0.tsv", "null"),
    ]:
        with pytest.raises(DataError, match=found):
            load_files(SST2, tmp_path / name, tmp_path / name)


def test_a_file_over_the_limit(monkeypatch: pytest.MonkeyPatch, refused):
    monkeypatch.setattr(textfiles, "MAX_BYTES", len(GOOD) - 1)
    assert f"the file must have at most {len(GOOD) - 1} bytes, got {len(GOOD)}" in str(refused(GOOD))


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl"])
def test_text_that_is_not_utf8(name: str, refused):
    header = '{"sentence": "x", "label": 1}' if name.endswith("jsonl") else GOOD.partition("\n")[0]
    header = header.replace("\t", ",") if name.endswith("csv") else header
    error = refused(header.encode() + b"\ncaf\xe9", name=name)
    assert error.line == 2
    assert "text must be UTF-8, got byte 0xe9 at position 4" in str(error)


@pytest.mark.parametrize("content", [GOOD.encode("utf-16"), GOOD.encode("utf-16-le"), b"sentence\tlabel\n\0\t1\n"])
def test_a_nul_byte_or_utf16(content: bytes, refused):
    assert "text must be UTF-8" in str(refused(content))


def test_an_escaped_nul_and_half_a_surrogate_pair(refused):
    for text in ("\\u0000", "\\ud83d"):
        content = '{"sentence": "x", "label": 1}\n{"sentence": "' + text + '", "label": 0}\n'
        error = refused(content, name="train.jsonl")
        assert error.line == 2
        assert "no NUL character and no half of a surrogate pair" in str(error)


def test_a_file_that_is_no_parquet(refused):
    assert "the file cannot be read" in str(refused("not parquet at all", name="train.parquet"))


def test_broken_json_names_its_line(tmp_path: Path, refused):
    good = '{"sentence": "x", "label": 1}\n'
    error = refused(good * 6 + '{"sentence": "x", "label": \n' + good, name="train.jsonl")
    assert error.line == 7
    assert str(error).startswith(
        f"{tmp_path / 'train.jsonl'}, line 7: the line must be one JSON object, got broken JSON ("
    )
    assert "the line must be one JSON object" in str(error)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("[1, 2]", "the line must be one JSON object, got a JSON array; convert the file"),
        ("3", "the line must be one JSON object, got 3"),
        ("null", "the line must be one JSON object, got a NoneType"),
        ("[" * 100_000, "got a JSON array"),
        ("1" * 5000, "broken JSON"),
    ],
)
def test_a_json_line_that_is_no_object(line: str, found: str, refused):
    error = refused('{"sentence": "x", "label": 1}\n\n' + line, name="train.jsonl")
    assert error.line == 3
    assert found in str(error)


@pytest.mark.parametrize("row", ["too few", "too\tmany\t1"])
def test_a_row_of_another_width(row: str, refused):
    error = refused(f"{GOOD}{row}\n")
    assert error.line == 4
    assert f"the row must have 2 cells, as the header has, got {row.count(chr(9)) + 1}" in str(error)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('sentence,label\ngood,1\n"not closed,0\nx,1\n', 3),
        ('sentence,label\n"a\nb",1\n"x"y,0\n', 4),
        ("sentence,label\ngood\rx,1\n", 2),
    ],
)
def test_broken_csv_names_the_line_where_the_row_begins(content: str, line: int, refused):
    error = refused(content, name="train.csv")
    assert error.line == line
    assert "broken csv" in str(error)


def test_a_csv_cell_is_as_long_as_its_limit(load, refused):
    header, row = "sentence,label\nbad,0\n", "x" * tables.MAX_CELL
    assert load(f"{header}{row},1\n", name="train.csv").train.texts[1] == row
    error = refused(f"{header}{row}x,1\n", name="train.csv")
    assert error.line == 3
    assert "a cell must have at most 16,777,216 characters" in str(error)


def test_lines_are_counted_through_cells_of_several_lines(refused):
    error = refused('sentence,label\n"a\n\nb",1\n\nbad,7\n', name="train.csv")
    assert error.line == 6
