"""Plain text to model language on."""

from __future__ import annotations

import json

import pytest

from mvprune.data.columns import Columns
from mvprune.data.loading import DataError, load_files, load_rows
from mvprune.data.tasks import get_task

OWN = get_task("masked-lm")
LANGUAGE = ("masked-lm", "causal-lm")
TEXTS = ("one two", "three, four", "naïve 漢字")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.txt", "one two\n\n \nthree, four\n naïve 漢字 \n"),
        ("train.tokens", " \n one two \nthree, four\r\nnaïve 漢字"),
        ("train.csv", 'id,text\n1,one two\n2,"three, four"\n3, \n4,naïve 漢字\n'),
        ("train.tsv", "Content\none two\nthree, four\nnaïve 漢字\n"),
        ("train.jsonl", "\n".join(json.dumps({"passage": text, "x": 1}) for text in (*TEXTS, ""))),
    ],
)
@pytest.mark.parametrize("task", LANGUAGE)
def test_texts_of_files(name: str, content: str, task: str, load):
    data = load(content, task=get_task(task), name=name)
    assert data.train == data.validation == TEXTS


def test_texts_of_parquet_and_rows(tmp_path):
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table({"mine": list(TEXTS)}), path)
    data = load_files(OWN, path, path, Columns(text="mine"))
    rows = [{"text": text} for text in ("", *TEXTS)]
    assert load_rows(get_task("masked-lm"), rows, rows, name="owner/set") == data


def test_the_fingerprint_is_of_the_texts(load):
    contents = ["a\nb", "a b", "b\na"]
    found = {load(content, task=OWN, name="train.txt", validation="a").fingerprint for content in contents}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "content", "columns", "found"),
    [
        ("train.txt", " \n\n", Columns(), "the texts must be at least 1, got 0"),
        ("train.txt", "", Columns(), "the file must not be empty"),
        ("train.txt", b"a\n\xff\n", Columns(), "line 2: text must be UTF-8, got byte 0xff at position 1"),
        ("train.txt", "a", Columns(text="text"), "text_column must not be given for a text file, got 'text'"),
        (
            "train.jsonl",
            '{"a": "b"}',
            Columns(),
            "a column must be the text, called text",
        ),
        ("train.jsonl", '{"text": 5}', Columns(), "line 1: 'text' must be text, got 5"),
        ("train.jsonl", '{"text": "a"}\n{}', Columns(), "line 2: 'text' must be text, got nothing"),
        (
            "train.jsonl",
            '{"text": "a"}',
            Columns(label="text"),
            "label_column must not be given for the task masked-lm",
        ),
        (
            "train.jsonl",
            '{"text": "a"}',
            Columns(text="text", text_pair="a"),
            "text_pair_column must not be given for the task masked-lm, which has text_column, got",
        ),
    ],
)
def test_files_that_cannot_be_used(name: str, content, columns: Columns, found: str, refused):
    assert found in str(refused(content, task=OWN, name=name, columns=columns))


def test_errors_of_rows_name_the_split():
    with pytest.raises(DataError, match=r"^owner/set \(validation\): the texts must be at least 1"):
        load_rows(OWN, [{"text": "a"}], [{"text": " "}], name="owner/set")
