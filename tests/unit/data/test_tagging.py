"""Tagged words: CoNLL files and tables of lists."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvprune.data.columns import Columns
from mvprune.data.loading import DataError, TaggedSplit, load_files, load_rows
from mvprune.data.tasks import get_task

NER = get_task("ner")
CONLL = """-DOCSTART- -X- -X- O

Word NNP B-NP B-PER
Two NNP I-NP I-PER
sat VBD B-VP O

In IN B-PP O
Place NNP B-NP B-LOC
"""
SPLIT = TaggedSplit([["Word", "Two", "sat"], ["In", "Place"]], [[2, 3, 0], [0, 1]])


@pytest.mark.parametrize(
    "content",
    [
        CONLL,
        CONLL + "\n \n",
        CONLL.replace(" ", "\t"),
        CONLL.replace("\n", "\r\n"),
        CONLL.rstrip("\n"),
        "\ufeff" + CONLL,
        "Word B-PER\nTwo I-PER\nsat O\n\t\nIn\tO\nPlace  B-LOC",
    ],
    ids=["official", "blank ends", "tabs", "windows", "no last line end", "byte order mark", "two columns"],
)
@pytest.mark.parametrize("name", ["train.txt", "train.conll", "train.tsv"])
def test_files_of_columns(content: str, name: str, load):
    data = load(content, task=NER, name=name)
    assert data.labels == ("O", "B-LOC", "B-PER", "I-PER")
    assert data.train == data.validation == SPLIT


@pytest.mark.parametrize("between", [" ", "  ", "\t"])
@pytest.mark.parametrize("blank", ["\u00a0", "\u202f", "\u3000"])
def test_other_blanks_are_part_of_a_word(blank: str, between: str, load):
    word = f"10{blank}000"
    assert load(f"{word}{between}B-NUM\nmen{between}O\n", task=NER, name="train.txt").train.words == [[word, "men"]]


@pytest.mark.parametrize(("words", "tags"), [("tokens", "ner_tags"), ("words", "tags"), ("Tokens", "labels")])
def test_tables_of_lists(words: str, tags: str, load, tmp_path):
    names = ("O", "B-LOC", "B-PER", "I-PER")
    rows = [
        {words: sentence, tags: [names[tag] for tag in numbers], "id": "x"}
        for sentence, numbers in zip(SPLIT.words, SPLIT.tags, strict=True)
    ]
    content = "\n".join(map(json.dumps, rows))
    data = load(content, task=NER, name="train.jsonl")
    assert data.train == SPLIT
    assert data.fingerprint == load(CONLL, task=NER, name="train.txt").fingerprint
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    assert load_files(NER, tmp_path / "train.parquet", tmp_path / "train.jsonl") == data
    renamed = content.replace(f'"{words}"', '"mine"')
    assert load(renamed, task=NER, name="train.jsonl", columns=Columns(text="mine", label=tags)).train == SPLIT


def test_numbers_are_tags_where_the_data_set_has_names():
    rows = [{"tokens": ["a", "b"], "ner_tags": [0, 2]}, {"tokens": ["c"], "ner_tags": [1]}]
    classes = {"ner_tags": ["O", "B-X", "I-X"]}
    data = load_rows(NER, rows, rows[:1], name="owner/set", classes=classes)
    assert data.labels == ("O", "B-X", "I-X")
    assert data.train.tags == [[0, 2], [1]]
    with pytest.raises(DataError, match=r"owner/set \(validation\), row 1: the tag must be one of O, B-X"):
        load_rows(NER, rows, [{"tokens": ["a"], "ner_tags": [3]}], name="owner/set", classes=classes)


def test_tags_may_be_in_the_validation_rows_alone(load):
    data = load("a B-X\nb O\n", task=NER, name="train.txt", validation="c B-Y\n")
    assert data.labels == ("O", "B-X", "B-Y")
    assert data.validation.tags == [[2]]


def test_the_fingerprint_covers_names_words_and_tags(load):
    contents = ["a B-X\nb O\n", "a B-Y\nb O\n", "a B-X\n\nb O\n", "a O\nb B-X\n", "a B-X\nc O\n"]
    assert len({load(content, task=NER, name="train.txt").fingerprint for content in contents}) == 5


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        ("a O\nb\n", 2, "the row must have 2 columns, as the first row has, got 1"),
        ("a O\nb\t\n", 2, "the row must have a word and its tag, in columns 1 and 2"),
        ("\n\n", None, "the sentences must be at least 1, got 0"),
        ("-DOCSTART- O\n", None, "the sentences must be at least 1, got 0"),
        ("a O\nb O\n", None, "the words must have at least two different tags"),
        ("a O\n\0 O\n", 2, "NUL"),
        ("".join(f"a B-{number}\n" for number in range(1001)), 1, "at most 1,000 different tags"),
    ],
)
def test_files_of_columns_that_cannot_be_used(content: str, line: int | None, found: str, refused):
    error = refused(content, task=NER, name="train.txt")
    assert error.line == line
    assert found in str(error)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"tokens": ["a"], "tags": ["O", "O"]}, "each word must have one tag, got 1 words and 2 tags"),
        ({"tokens": "a", "tags": ["O"]}, "'tokens' must be a list with an entry for each word, got 'a'"),
        ({"tokens": ["a"]}, "'tags' must be a list with an entry for each word, got a NoneType"),
        ({"tokens": ["a", 5], "tags": ["O", "O"]}, "'tokens' must be words that are not empty"),
        ({"tokens": [""], "tags": ["O"]}, "'tokens' must be words that are not empty"),
        ({"tokens": ["a"], "tags": [3]}, "the tag must be a name, such as B-PER, I-PER and O, got 3"),
        ({"tokens": ["a"], "tags": [None]}, "the tag must be a name, such as B-PER, I-PER and O, got a NoneType"),
        ({"tokens": ["a"], "tags": [""]}, "the tag must be a name, such as B-PER, I-PER and O, got ''"),
    ],
)
def test_rows_that_cannot_be_used(row: dict, found: str, refused):
    good = {"tokens": ["a", "b"], "tags": ["O", "B-X"]}
    error = refused(f"{json.dumps(good)}\n{json.dumps(row)}\n", task=NER, name="train.jsonl")
    assert error.line == 2
    assert found in str(error)


def test_columns_that_are_not_there(refused):
    row = json.dumps({"tokens": ["a"], "pos": ["x"]})
    assert "a column must be the label, called ner_tags, tags" in str(refused(row, task=NER, name="train.jsonl"))
    assert "text_column must be one of the columns" in str(
        refused(row, task=NER, name="train.jsonl", columns=Columns(text="mine", label="pos"))
    )
    for columns in (Columns(text="tokens"), Columns(label="tag")):
        error = refused(CONLL, task=NER, name="train.txt", columns=columns)
        assert "_column must be the number of one of the 4 columns, from 1, got 't" in str(error)
    assert (
        "text_pair_column must not be given for the task ner, which has text_column and label_column, got 'b'"
        in str(refused(row, task=NER, name="train.jsonl", columns=Columns(text="a", text_pair="b")))
    )


def gives_data_or_an_error(path) -> bool:
    try:
        split = load_files(NER, path, path).train
        return [len(words) for words in split.words] == [len(tags) for tags in split.tags]
    except DataError as error:
        return error.path == path


@settings(max_examples=60)
@given(content=st.binary(max_size=200), good=st.booleans())
@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_any_bytes_give_data_or_an_error(suffix: str, content: bytes, good: bool, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / f"tags{suffix}"
    path.write_bytes((b"a O\nb B-X\n" if good and suffix == ".txt" else b"") + content)
    assert gives_data_or_an_error(path)
