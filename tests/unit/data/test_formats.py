"""Csv, tsv, JSON lines and parquet: the same data from each, any text survives."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvprune.data.loading import DataError, Split, load_files
from mvprune.data.tasks import Task, get_task

SST2 = get_task("sst2")
MRPC = get_task("mrpc")
STSB = get_task("stsb")
OWN = get_task("text-classification")
GOOD = "sentence\tlabel\ngood\t1\nbad\t0\n"


ROWS = [('good, "very" good', 1), ("bad", 0), ("naïve – 漢字 \u2028\x85 x", 1)]


def write_table(path: Path, rows: list[tuple]) -> Path:
    header = ["sentence", "label"]
    match path.suffix:
        case ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([header, *rows])
        case ".tsv":
            lines = ["\t".join(map(str, row)) for row in [header, *rows]]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
        case ".parquet":
            import pyarrow
            from pyarrow import parquet

            columns = [list(column) for column in zip(*rows, strict=True)]
            parquet.write_table(pyarrow.table(dict(zip(header, columns, strict=True))), path)
        case _:
            lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".CSV"])
def test_every_format_gives_the_same_data(suffix: str, tmp_path: Path):
    path = write_table(tmp_path / f"train{suffix.lower()}", ROWS).rename(tmp_path / f"rows{suffix}")
    data = load_files(SST2, path, path)
    assert data.train == Split([text for text, _ in ROWS], None, [1, 0, 1])
    reference = write_table(tmp_path / "reference.jsonl", ROWS)
    assert data.fingerprint == load_files(SST2, reference, reference).fingerprint


def test_formats_mix(tmp_path: Path):
    data = load_files(SST2, write_table(tmp_path / "train.jsonl", ROWS), write_table(tmp_path / "dev.tsv", ROWS[:1]))
    assert (len(data.train), len(data.validation)) == (3, 1)
    assert data.labels == ("negative", "positive")


def test_quotes_in_tsv_are_plain_characters(load):
    data = load('sentence\tlabel\n"unbalanced\t1\nsay "no\t0\n')
    assert data.train.texts == ['"unbalanced', 'say "no']


def test_quotes_in_csv_hold_commas_and_line_ends(load):
    data = load('sentence,label\r\n"a, ""b""\r\nc",1\r\nbad,0\r\n', name="train.csv")
    assert data.train.texts == ['a, "b"\r\nc', "bad"]


@pytest.mark.parametrize("name", ["train.csv", "train.tsv"])
def test_byte_order_mark_line_ends_and_blank_lines(name: str, load):
    content = GOOD.replace("\t", "," if name.endswith("csv") else "\t")
    plain = load(content, name=name)
    windows = load(b"\xef\xbb\xbf" + content.replace("\n", "\r\n\r\n").encode(), name=name)
    assert windows.fingerprint == plain.fingerprint
    assert load(content.rstrip("\n"), name=name).fingerprint == plain.fingerprint


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30).filter(
    str.strip
)
TSV_TEXT = TEXT.filter(lambda text: not set(text) & set("\t\n\r"))


def _round_trip(path: Path, texts: list[str]) -> None:
    rows = [(text, index % 2) for index, text in enumerate(texts)]
    data = load_files(SST2, write_table(path, rows), path)
    assert data.train == Split(texts, None, [label for _, label in rows])


@given(texts=st.lists(TEXT, min_size=2, max_size=6))
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_any_text_survives(suffix: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory):
    _round_trip(tmp_path_factory.getbasetemp() / f"round{suffix}", texts)


@given(texts=st.lists(TSV_TEXT, min_size=2, max_size=6))
def test_any_text_without_tabs_and_line_ends_survives_tsv(texts: list[str], tmp_path_factory: pytest.TempPathFactory):
    _round_trip(tmp_path_factory.getbasetemp() / "round.tsv", texts)


def gives_data_or_an_error(task: Task, path: Path) -> bool:
    try:
        return len(load_files(task, path, path).train) >= 2
    except DataError as error:
        return error.path == path


@settings(max_examples=60)
@given(content=st.binary(max_size=300), good=st.booleans())
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_any_bytes_give_data_or_an_error(
    suffix: str, content: bytes, good: bool, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    if good:  # a good beginning, so that rows are reached
        write_table(path, ROWS)
        content = path.read_bytes() + content
    path.write_bytes(content)
    assert all(gives_data_or_an_error(task, path) for task in (SST2, MRPC, OWN, STSB))


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_parquet_file_gives_data_or_an_error(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory):
    path = write_table(tmp_path_factory.getbasetemp() / "damaged.parquet", ROWS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    assert gives_data_or_an_error(SST2, path)


@pytest.mark.slow
def test_many_rows_are_read_quickly(tmp_path: Path, write):
    path = write(
        tmp_path / "train.tsv", "sentence\tlabel\n" + "a sentence of some eight words or so\t1\nno\t0\n" * 30_000
    )
    begin = time.process_time()
    assert len(load_files(SST2, path, path).train) == 60_000
    assert time.process_time() - begin < 5  # generous: about half a second


def test_a_parquet_file_without_rows(tmp_path: Path):
    from pyarrow import parquet

    path = write_table(tmp_path / "train.parquet", ROWS)
    parquet.write_table(parquet.read_table(path).slice(0, 0), path)
    with pytest.raises(DataError, match="the rows must be at least 2, got 0"):
        load_files(SST2, path, path)
