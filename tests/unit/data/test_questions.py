"""Questions: SQuAD's own format, with answers and without, and rows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from mvprune.data.columns import Columns
from mvprune.data.loading import DataError, load_rows
from mvprune.data.tasks import get_task

V1, V2 = get_task("squad"), get_task("squad_v2")
PASSAGE = "Good word and bad word"


def entry(number: int, *answers: tuple[str, object], **more: object) -> dict:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": f"q{number}", "question": "Which word?", "answers": given, **more}


def squad(*entries: dict, context: object = PASSAGE) -> str:
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(entries)}]}]})


ANSWERED = entry(0, ("Good", 0), ("bad word", 14))
OPEN = entry(1, is_impossible=True, plausible_answers=[{"text": "bad", "answer_start": 14}])


def test_questions_with_and_without_answers(load):
    data = load(squad(ANSWERED, OPEN), task=V2, name="train.json")
    assert [question.answers for question in data.train] == [(("Good", 0), ("bad word", 14)), ()]
    assert {question.context for question in data.train} == {PASSAGE}
    assert data.fingerprint != load(squad(OPEN, ANSWERED), task=V2, name="train.json").fingerprint


def test_an_impossible_question_has_no_answer_whatever_stands_there(load):
    data = load(squad(entry(0, ("Good", 0), is_impossible=True), ANSWERED), task=V2, name="train.json")
    assert data.train[0].answers == ()


def test_squad_1_names_the_task_that_takes_questions_without_answers(refused):
    assert "question 'q1' must have an answer for the task squad, got none; the task squad_v2 takes" in str(
        refused(squad(ANSWERED, OPEN), task=V1, name="train.json")
    )


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (squad(), "the questions must be at least 1, got 0"),
        (
            squad(entry(0, ("Good", 1))),
            "answer_start of question 'q0' must be where its answer begins, got 1; the answer 'Good' begins at",
        ),
        (squad(entry(0, ("Good", -22))), "got -22; the answer 'Good' begins at 0"),
        (squad(entry(0, ("Good", True))), "must be where its answer begins, got True; the answer 'Good' begins at 0"),
        (squad(entry(0, (" ", 4))), "an answer of question 'q0' must not be blank"),
        (squad(ANSWERED, context=5), "the context of question 'q0' must be text, got 5"),
        (squad(ANSWERED, context="Good \0"), "must have no NUL character and no half of a surrogate pair"),
        (squad({**ANSWERED, "id": 7}), "the id of question 7 must be text, got 7"),
        (squad({**ANSWERED, "question": None}), "the question of question 'q0' must be text, got nothing"),
        (
            squad({"id": "q7"}),
            "must be in SQuAD's format (data, paragraphs, qas, answers), got no 'answers', after question 'q7'",
        ),
        (squad("q"), "the file must be in SQuAD's format"),
        ('{"data": 5}', "the file must be in SQuAD's format"),
        ("[1, ", "line 1: the file must be JSON in SQuAD's format, got Expecting value at column 5"),
        ('{"version": "1.1"}', "answers), got no 'data'"),
        ("[1]", "(data, paragraphs, qas, answers), got something else in place of an object or a list"),
        ("[" * 100_000, "the file must be JSON in SQuAD's format and in UTF-8, got something else"),
        (b'{"data": "\xff"}', "the file must be JSON in SQuAD's format and in UTF-8"),
        ("", "the file must not be empty"),
    ],
    ids=range(18),
)
def test_files_that_cannot_be_used(content, found: str, refused):
    error = refused(content, task=V2, name="train.json")
    assert found in str(error)
    assert str(error).startswith(str(error.path))


ROW = {"id": "a", "question": "Which?", "context": PASSAGE, "answers": {"text": ["Good"], "answer_start": [0]}}
OPEN_ROW = {**ROW, "id": "b", "answers": {"text": [], "answer_start": []}}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_tables_of_rows(kind: str, load, tmp_path: Path):
    rows = [ROW, OPEN_ROW]
    if kind == "jsonl":
        content: str | bytes = "\n".join(map(json.dumps, rows))
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows")
        content = (tmp_path / "rows").read_bytes()
    data = load(content, task=V2, name=f"train.{kind}")
    assert [question.answers for question in data.train] == [(("Good", 0),), ()]
    assert [question.id for question in data.validation] == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (
            {"id": "a", "question": "Which?"},
            "the columns must be id, question, context and answers, got none called context, answers",
        ),
        (
            {**ROW, "answers": ["Good"]},
            "line 1: the row must have id, question, context and answers, answers with",
        ),
        (
            {**ROW, "answers": {"text": ["a", "b"], "answer_start": [0]}},
            "the lists text and answer_start, equally long",
        ),
        ({**ROW, "context": None}, "the context of question 'a' must be text, got nothing"),
    ],
)
def test_tables_that_cannot_be_used(row: dict, found: str, refused):
    assert found in str(refused(json.dumps(row), task=V2, name="train.jsonl"))


def test_rows_of_a_data_set():
    data = load_rows(V2, [ROW, OPEN_ROW], [ROW], name="owner/set")
    assert [question.answers for question in data.train] == [(("Good", 0),), ()]
    with pytest.raises(DataError, match=r"^owner/set \(validation\), row 1: the row must have id, question, context"):
        load_rows(V2, [ROW], [ROW | {"answers": None}], name="owner/set")
    with pytest.raises(DataError, match=r"^owner/set \(validation\): the columns must be .*, got none called question"):
        load_rows(V2, [ROW], [{"id": "a"}], name="owner/set")


def test_columns_have_fixed_names(refused):
    error = refused(squad(ANSWERED), task=V1, name="train.json", columns=Columns(text="question"))
    assert (
        "text_column must not be given for the task squad, which has columns with fixed names, got 'question'"
        in str(error)
    )


@pytest.mark.parametrize(("encoding", "size", "unit"), [("utf-16-le", 2, "UTF-16 units"), ("utf-8", 1, "UTF-8 bytes")])
def test_offsets_in_other_units(encoding: str, size: int, unit: str, refused):
    entries = []
    for number, context in enumerate(("\U0001f600 good word", "plain good word", "é \U0001f600\U0001f600 good word")):
        start = len(context[: context.index("good")].encode(encoding)) // size
        qa = {"id": f"q{number}", "question": "how?", "answers": [{"text": "good", "answer_start": start}]}
        entries.append({"context": context, "qas": [qa]})
    content = {"data": [{"paragraphs": entries}]}
    error = str(refused(json.dumps(content), task=V2, name="train.json"))
    assert "answer_start of question 'q0' must be where its answer begins, got " in error
    assert "the answer 'good' begins at 2. All offsets of the file fit " + unit in error
    entries[1]["qas"][0]["answers"][0]["answer_start"] = 4
    error = str(refused(json.dumps(content), task=V2, name="train.json"))
    assert "begins at 2. Offsets count characters (Unicode code points) from 0, not UTF-16 units or bytes" in error


def test_an_answer_that_stands_nowhere_or_often(refused):
    qa = {"id": "q", "question": "how?", "answers": [{"text": "x", "answer_start": 1}]}
    for context, found in (
        ("a b", "the context does not hold the answer 'x'"),
        ("x" + " x" * 9, "begins at 0, 2, 4 and"),
    ):
        content = json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [qa]}]}]})
        assert found in str(refused(content, task=V2, name="train.json"))
