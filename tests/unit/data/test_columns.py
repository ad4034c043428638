"""Which columns are the text and the label."""

from __future__ import annotations

import json

import pytest

from mvprune.data.loading import Columns, DataError, Split
from mvprune.data.tasks import get_task

SST2 = get_task("sst2")
MRPC = get_task("mrpc")
OWN = get_task("text-classification")
GOOD = "sentence\tlabel\ngood\t1\nbad\t0\n"


@pytest.mark.parametrize(
    ("task", "header", "chosen"),
    [
        (SST2, "sentence label", (0, None)),
        (SST2, "TEXT Label", (0, None)),
        (SST2, "id sentiment review", (2, None)),
        (SST2, "text sentence label", (1, None)),
        (MRPC, "text text_pair label", (0, 1)),
        (MRPC, "quality premise hypothesis", (1, 2)),
        (OWN, "title content label", (0, 1)),
        (OWN, "text title label", (0, None)),
        (OWN, "text text_pair label", (0, 1)),
        (OWN, "target question sentence", (1, 2)),
        (OWN, "target question", (1, None)),
    ],
)
def test_columns_are_found_by_name(task, header: str, chosen: tuple, load):
    names = header.split()
    cells = [f"t{index}" for index in range(len(names))]
    label = next(
        index for index, name in enumerate(names) if name.lower() in ("label", "sentiment", "quality", "target")
    )
    rows = [[*cells[:label], number, *cells[label + 1 :]] for number in "01"]
    data = load("\n".join("\t".join(row) for row in [names, *rows]), task=task)
    text, pair = chosen
    assert data.train.texts == [cells[text]] * 2
    assert data.train.pairs == (None if pair is None else [cells[pair]] * 2)


def test_columns_are_taken_as_named(load):
    content = "Body\tlabel\tMark\ngood\tx\t1\nbad\ty\t0\n"
    data = load(content, columns=Columns(text="body", label="Mark"))
    assert data.train == Split(["good", "bad"], None, [1, 0])
    data = load(content, task=OWN, columns=Columns(text="Body", text_pair="label", label="mark"))
    assert data.train.pairs == ["x", "y"]


def test_an_exact_name_comes_before_another_case(load):
    data = load("Text\ttext\tlabel\nno\tgood\t1\nno\tbad\t0\n", columns=Columns(text="text"))
    assert data.train.texts == ["good", "bad"]


@pytest.mark.parametrize(
    ("task", "header", "columns", "found"),
    [
        (
            SST2,
            "sentence\tx",
            Columns(),
            r"a column must be the label, called label.*: sentence, x; name it \(label_column, --label-column\)$",
        ),
        (
            SST2,
            "x\tlabel",
            Columns(),
            r"a column must be the text, called sentence, text.*: x, label; name it \(text_column, --text-column\)$",
        ),
        (
            MRPC,
            "sentence1\tlabel",
            Columns(),
            r"must be the text.* sentence1 \+ sentence2, .*: sentence1, label; name it",
        ),
        (
            SST2,
            "sentence\tlabel",
            Columns(label="mark"),
            "label_column must be one of the columns.*: sentence, label, got 'mark'$",
        ),
        (
            SST2,
            "sentence\tlabel",
            Columns(text="body"),
            "text_column must be one of the columns.*: sentence, label, got 'body'$",
        ),
        (SST2, "sentence\tlabel", Columns(text="label"), "text and label must be different columns"),
        (
            SST2,
            "sentence\tlabel",
            Columns(text="sentence", text_pair="label"),
            "text_pair_column must not be given for the task sst2",
        ),
        (SST2, "sentence\tlabel", Columns(text_pair="sentence"), "text_column must be given with text_pair_column"),
        (
            MRPC,
            "sentence1\tlabel",
            Columns(text="sentence1"),
            "text_pair_column must be given with text_column for the task mrpc, got sentence1",
        ),
        (SST2, "label\tlabel", Columns(), "the columns must have different names, got 'label' twice"),
    ],
)
def test_columns_that_are_not_there(task, header: str, columns: Columns, found: str, load):
    with pytest.raises(DataError, match=found):
        load(f"{header}\na\t1\nb\t0\n", task=task, columns=columns)


def test_a_file_without_a_header_shows_what_was_taken_for_one(refused):
    assert "by the first line: a fine film, 1" in str(refused("a fine film\t1\na bad film\t0\n"))


def test_a_hundred_columns_are_not_all_listed(refused):
    header = "\t".join(f"c{index}" for index in range(100))
    assert str(refused(f"{header}\n")).endswith("c19 and 80 more; name it (label_column, --label-column)")


def test_one_text_to_train_on_and_two_to_validate_on(refused):
    error = refused("text\tlabel\na\t0\nb\t1\n", task=OWN, validation="text\ttext_pair\tlabel\na\tb\t1\n")
    assert "the columns of text must be as many in each file, got one, and two in" in str(error)


def test_json_objects_may_have_more_keys_but_not_fewer(load, refused):
    rows = '{"sentence": "a", "label": 1}\n{"label": 0, "sentence": "b", "more": []}\n'
    assert load(rows, name="train.jsonl").train.texts == ["a", "b"]
    error = refused(rows + '{"sentence": "c"}\n', name="train.jsonl")
    assert error.line == 3
    assert "'label' must have a value, got nothing" in str(error)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"label": 1}, "'sentence' must be text, got nothing"),
        ({"sentence": None, "label": 1}, "'sentence' must be text, got nothing"),
        ({"sentence": "", "label": 1}, "'sentence' must not be blank"),
        ({"sentence": " \t", "label": 1}, "'sentence' must not be blank"),
        ({"sentence": 5, "label": 1}, "'sentence' must be text, got 5"),
        ({"sentence": ["x"], "label": 1}, "'sentence' must be text, got a list"),
        ({"sentence": "x", "label": None}, "'label' must have a value, got nothing"),
        ({"sentence": "x", "label": ""}, "'label' must not be blank"),
        ({"sentence": "x", "label": {"a": 1}}, "'label' must be one label, got a dict"),
    ],
)
def test_cells_that_are_missing_or_of_another_type(row: dict, found: str, refused):
    good = '{"sentence": "x", "label": 1}\n'
    error = refused(good + json.dumps(row), name="train.jsonl")
    assert error.line == 2
    assert found in str(error)


def test_an_empty_cell(refused):
    assert str(refused(f"{GOOD}\t1\n")).endswith("line 4: 'sentence' must not be blank")
    assert str(refused(f"{GOOD}fine\t\n")).endswith("line 4: 'label' must not be blank")


def objects(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("first", "rest", "missing"),
    [
        ({"text": "a", "label": "x"}, {"text": "b", "text_pair": "c", "label": "y"}, "text_pair"),
        ({"text": "a", "rating": 1}, {"text": "b", "rating": 2, "label": "y"}, "label"),
        ({"label": "x", "body": "a"}, {"label": "y", "text": "b", "body": "c"}, "text"),
        ({"label": "x"}, {"label": "y", "text": "b"}, "text"),
    ],
)
def test_a_key_that_the_first_object_leaves_out(first: dict, rest: dict, missing: str, refused):
    error = refused(objects(first, rest, rest), task=OWN, name="train.jsonl")
    assert error.line == 1
    rule = "have a value" if missing == "label" else "be text"
    assert f"'{missing}' must {rule}, got nothing" in str(error)


def test_null_is_missing_too(refused):
    error = refused(
        objects({"text": "a", "text_pair": None, "label": "x"}, {"text": "b", "text_pair": "c", "label": "y"}),
        task=OWN,
        name="train.jsonl",
    )
    assert str(error).endswith("line 1: 'text_pair' must be text, got nothing")


@pytest.mark.parametrize(
    ("task", "row", "late", "key"),
    [
        (OWN, {"text": "a", "label": 1}, {"text": "b", "label": 0, "text_pair": "c"}, "text_pair"),
        (OWN, {"text": "a", "rating": 1}, {"text": "b", "label": 0, "rating": 1}, "label"),
        (get_task("masked-lm"), {"body": "a"}, {"body": "b", "text": "c"}, "text"),
        (get_task("ner"), {"words": ["a"], "ner": ["O"]}, {"words": ["a"], "ner": ["B-X"], "tokens": ["b"]}, "tokens"),
    ],
)
def test_a_key_that_comes_late(task, row: dict, late: dict, key: str, refused):
    error = refused(objects(*[row] * 1200, late, late), task=task, name="train.jsonl")
    assert error.line == 1201
    assert f"the key '{key}' must be in all rows or in none, and no row before this one has it" in str(error)


def test_a_late_key_that_is_not_read(load):
    rows = [{"text": "a", "label": number % 2} for number in range(1200)]
    assert len(load(objects(*rows, {**rows[0], "id": 7}), task=OWN, name="train.jsonl").train) == 1201


def test_a_key_twice_in_one_object(refused):
    error = refused('{"text": "a", "label": 1}\n{"text": "a", "label": 1, "label": 0}\n', task=OWN, name="train.jsonl")
    assert str(error).endswith("line 2: the keys of an object must be different, got 'label' twice")


@pytest.mark.parametrize(
    ("task", "header", "role", "names"),
    [
        (OWN, "text score sentiment", "label", "score, sentiment"),
        (OWN, "text category topic rating", "label", "category, topic, rating"),
        (SST2, "sentence class target", "label", "class, target"),
        (OWN, "review comment label", "text", "review, comment"),
        (OWN, "title content description label", "text", "title + content, title + description"),
        (OWN, "premise hypothesis body label", "text", "premise + hypothesis, body"),
    ],
)
def test_two_columns_that_may_be_meant(task, header: str, role: str, names: str, refused, load):
    names_of_columns = header.split()
    cells = [["x", "1", "0"][:1] * len(names_of_columns)]
    content = "\n".join("\t".join(row) for row in [names_of_columns, *cells])
    error = refused(content, task=task)
    assert f"only one column must look like the {role}, got {names}; name the one that is meant" in str(error)
    assert f"({role}_column, --{role}-column)" in str(error)


@pytest.mark.parametrize(
    ("task", "row", "names"),
    [
        (get_task("masked-lm"), {"abstract": "a", "body": "b"}, "body, abstract"),
        (get_task("ner"), {"tokens": ["a"], "labels": ["O"], "ner": ["O"]}, "labels, ner"),
    ],
)
def test_two_columns_that_may_be_meant_in_other_tasks(task, row: dict, names: str, refused):
    assert f"got {names}; name the one" in str(refused(objects(row, row), task=task, name="train.jsonl"))


def test_one_of_two_columns_is_named(load):
    content = "text\tscore\tsentiment\na\t1\tneg\nb\t2\tpos\n"
    assert load(content, task=OWN, columns=Columns(label="sentiment")).labels == ("neg", "pos")
    assert load(content.replace("score", "label"), task=OWN).labels == ("1", "2")


def test_a_first_line_that_is_a_row_is_suspected(refused):
    hint = "; if the first line is a row already, put a line with the names of the columns before it"
    found = str(refused("1\tgood\n0\tbad\n"))
    assert found.endswith(f"got the columns, by the first line: 1, good{hint}")
    assert str(refused("a film that I liked\tgood\nbad\tbad\n")).endswith(hint)
    assert str(refused("1\tgood\n0\tbad\n", columns=Columns(text="good", label="x"))).endswith(
        f"1, good, got 'x'{hint}"
    )
    assert str(refused("1\t1\tx\n")).endswith(f"the columns must have different names, got '1' twice{hint}")
    assert str(refused("said\tmood\ngood\t1\n")).endswith("; name it (label_column, --label-column)")


def test_blanks_around_a_key_are_seen(refused):
    rows = "".join(json.dumps({"text": f"word {number}", "label ": number}) + "\n" for number in (0, 1))
    assert "got the columns, by the first line: text, 'label '; name it" in str(refused(rows, name="t.jsonl"))
