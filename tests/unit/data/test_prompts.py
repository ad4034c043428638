"""Prompts and their answers to model language on."""

from __future__ import annotations

import json

import pytest

from mvprune.data.columns import Columns
from mvprune.data.loading import PassageData
from mvprune.data.tasks import get_task

OWN = get_task("causal-lm")


def lines(*rows: dict[str, object]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (("prompt", "response"), Columns()),
        (("Instruction", "output"), Columns()),
        (("question", "answer"), Columns()),
        (("text", "mine"), Columns(text="text", text_pair="mine")),
        (("prompt", "mine"), Columns(text_pair="mine")),
    ],
)
def test_pairs_are_found_by_name_or_named(names: tuple[str, str], columns: Columns, load):
    rows = [dict(zip(names, pair, strict=True)) | {"id": 1} for pair in ((" one ", "two"), ("three", "four\nfive"))]
    data = load(lines(*rows), task=OWN, name="train.jsonl", columns=columns)
    assert isinstance(data, PassageData)
    assert (data.train, data.train_answers) == (("one", "three"), ("two", "four\nfive"))
    assert data.validation_answers == data.train_answers
    assert OWN.kind.has_pairs(data)
    assert [name in data.columns[0] for name in names] == [True, True]


def test_a_column_of_texts_comes_first(load):
    rows = [{"text": "all of it", "prompt": "all", "response": "of it"}]
    for columns in (Columns(), Columns(text="prompt")):
        data = load(lines(*rows), task=OWN, name="train.jsonl", columns=columns)
        assert (data.train_answers, OWN.kind.has_pairs(data)) == ((), False)


def test_the_fingerprint_is_of_the_answers_too(load):
    found = {
        load(lines({"prompt": "a", "answer": answer}), task=OWN, name="train.jsonl").fingerprint for answer in "bc"
    }
    assert len(found | {load("a", task=OWN, name="train.txt").fingerprint}) == 3


@pytest.mark.parametrize(
    ("content", "columns", "found"),
    [
        (lines({"prompt": "a", "answer": " "}), Columns(), "line 1: 'answer' must not be blank"),
        (
            lines({"prompt": "a"}),
            Columns(text_pair="b"),
            "text_pair_column must be one of the columns, by the first line: prompt, got 'b'",
        ),
        (lines({"x": "a", "answer": "b"}), Columns(text_pair="answer"), "a column must be the text, called prompt"),
        (lines({"prompt": "a"}), Columns(text="prompt", text_pair="prompt"), "must be different columns, got 'prompt'"),
    ],
)
def test_tables_that_cannot_be_used(content: str, columns: Columns, found: str, refused):
    assert found in str(refused(content, task=OWN, name="train.jsonl", columns=columns))
