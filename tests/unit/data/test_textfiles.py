"""Lines of text files: their ends, compression and bounds."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pytest

from mvprune.data import textfiles
from mvprune.data.loading import DataError, TaskFiles, find_task_files, load_files
from mvprune.data.tasks import get_task

SST2 = get_task("sst2")
GOOD = "sentence\tlabel\ngood\t1\nbad\t0\n"
SQUAD = {"data": [{"paragraphs": [{"context": "a b", "qas": [
    {"id": "1", "question": "q", "answers": [{"text": "b", "answer_start": 2}]}
]}]}]}  # fmt: skip
CONTENTS = {
    "sst2": (".tsv", GOOD),
    "text-classification": (".csv", "text,label\na,x\nb,y\n"),
    "text-regression": (".jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n'),
    "ner": (".txt", "a B-X\nb O\n"),
    "masked-lm": (".txt", "a\nb\n"),
    "squad": (".json", json.dumps(SQUAD)),
}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (gzip.compress(b"x"), "gzip; name it d{}.gz"),
        (bz2.compress(b"x"), "bzip2; name it d{}.bz2"),
        (b"PK\x03\x04 of a workbook", "a zip archive or an Excel workbook; extract the file, or save the sheet as csv"),
        (b"PAR1 of pandas", "parquet; let its name end in .parquet"),
        ("text,label\n".encode("utf-16"), "UTF-16; convert it, such as with: iconv"),
        (lzma.compress(b"x"), "xz; decompress it with: xz -d"),
    ],
    ids=["gzip", "bzip2", "zip", "parquet", "utf-16", "xz"],
)
@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_of_another_kind_than_its_name_says(name: str, content: bytes, found: str, tmp_path: Path, write):
    suffix, _ = CONTENTS[name]
    other = write(tmp_path / f"d{suffix}", content)
    with pytest.raises(DataError) as caught:
        load_files(get_task(name), other, other)
    assert f"d{suffix}: text must be UTF-8, got {found.format(suffix)}" in str(caught.value)
    twice = write(tmp_path / f"twice{suffix}.gz", gzip.compress(content))
    with pytest.raises(DataError, match="decompressed text must be UTF-8, got "):
        load_files(get_task(name), twice, twice)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("name", CONTENTS)
def test_every_kind_of_file_may_be_compressed(name: str, compress, tmp_path: Path, write):
    suffix, content = CONTENTS[name]
    ending = ".gz" if compress is gzip.compress else ".BZ2"
    plain = write(tmp_path / f"plain{suffix}", content)
    packed = write(tmp_path / f"packed{suffix}{ending}", compress(content.encode()))
    task = get_task(name)
    assert load_files(task, packed, packed).fingerprint == load_files(task, plain, plain).fingerprint


def test_a_compressed_file_that_is_cut_or_none(tmp_path: Path, write):
    whole = gzip.compress((GOOD * 100).encode())
    for content in (whole[:-12], whole[:60], b"not compressed", whole[:20] + b"\xff" * 20):
        path = write(tmp_path / "train.tsv.gz", content)
        with pytest.raises(DataError, match="the compressed file is cut or corrupt") as error:
            load_files(SST2, path, path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["train.tsv.gz", "train.json.gz"])
def test_what_a_compressed_file_expands_to_is_bounded(name: str, tmp_path: Path, monkeypatch, write):
    monkeypatch.setattr(textfiles, "_ALWAYS_ALLOWED", 1000)
    path = write(tmp_path / name, gzip.compress(GOOD.encode() + b"a\t1\n" * 100_000))
    size = path.stat().st_size
    assert textfiles.expanded_limit(path, size) == 100 * size
    with pytest.raises(DataError, match=f"hold at most {100 * size:,} bytes after decompression, got more"):
        load_files(get_task("squad") if "json" in name else SST2, path, path)
    assert textfiles.expanded_limit(path.with_suffix(""), size) == size


def test_a_line_has_a_limit(monkeypatch, refused, load):
    monkeypatch.setattr(textfiles, "MAX_LINE", 20)
    load(f"{GOOD}{'x' * 17}\t1\n")
    error = refused(f"{GOOD}{'x' * 18}\t1\n")
    assert error.line == 4
    assert "the line must have at most 20 bytes, got more" in str(error)


@pytest.mark.parametrize("name", CONTENTS)
def test_carriage_returns_alone_end_no_lines(name: str, refused):
    suffix, content = CONTENTS[name]
    if suffix == ".json":
        return  # JSON is one value, whatever the ends of its lines
    error = refused(content.replace("\n", "\r"), task=get_task(name), name=f"train{suffix}")
    assert "lines must end in LF or CR LF, got CR only (classic Mac OS); convert the file, such as with: tr" in str(
        error
    )
    assert "universal" not in str(error)


def test_a_carriage_return_inside_of_a_line_is_text(load):
    assert load("sentence\tlabel\na\rb\t1\nc\t0\n").train.texts == ["a\rb", "c"]


@pytest.mark.parametrize(
    "names",
    [
        ("train.tsv.gz", "dev.tsv.bz2"),
        ("train.csv", "dev.jsonl.gz"),
        ("train.jsonl.gz", "dev.parquet"),
    ],
)
def test_the_files_of_a_named_task_have_other_forms(names: tuple[str, str], tmp_path: Path, write):
    train, dev = (write(tmp_path / "SST-2" / name, "x") for name in names)
    assert find_task_files(SST2, tmp_path) == TaskFiles(train, dev)
    write(tmp_path / "SST-2" / "dev.txt", "x")
    first = write(tmp_path / "SST-2" / "train.tsv", "x")
    assert find_task_files(SST2, tmp_path) == TaskFiles(first, dev)


def test_the_files_of_other_tasks_may_be_compressed_only(tmp_path: Path, write):
    squad = get_task("squad")
    files = [write(tmp_path / "SQuAD" / f"{name}-v1.1.json.gz", "x") for name in ("train", "dev")]
    assert find_task_files(squad, tmp_path) == TaskFiles(*files)
    write(tmp_path / "CoNLL-2003" / "train.tsv", "x")
    write(tmp_path / "CoNLL-2003" / "valid.tsv", "x")
    assert find_task_files(get_task("ner"), tmp_path) is None
