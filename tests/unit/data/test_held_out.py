"""Examples to test a result on: a file's, or a part of a large validation set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mvprune.data.columns import Columns
from mvprune.data.held_out import HELD_OUT_FROM, hold_out, with_test
from mvprune.data.kinds.classification.labelled import ClassificationData, Split
from mvprune.data.loading import (
    DataError,
    PassageData,
    Question,
    QuestionAnsweringData,
    TaggedSplit,
    TokenClassificationData,
    load_files,
)
from mvprune.data.tasks import get_task

ROWS = {"train": "text\tlabel\ngood\tup\nbad\tdown\n", "validation": "text\tlabel\nfine\tup\n"}
MANY = [str(number) for number in range(HELD_OUT_FROM + 1)]


@pytest.fixture
def data(tmp_path: Path) -> Any:
    for name, rows in ROWS.items():
        (tmp_path / f"{name}.tsv").write_text(rows)
    return load_files(get_task("text-classification"), tmp_path / "train.tsv", tmp_path / "validation.tsv")


def test_a_file_is_the_test(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("text\tlabel\npoor\tdown\nfine\tup\n")
    found: Any = with_test(data, path)
    assert found.test.validation == Split(["poor", "fine"], None, [0, 1])
    assert (found, found.fingerprint) == (data, data.fingerprint), "training and its evaluation do not depend on it"
    assert found.test.fingerprint != data.fingerprint


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (ROWS["validation"], Columns(), "other examples than the validation file, got the same; give examples that"),
        (ROWS["train"], Columns(), "other examples than the train file, got the same"),
        ("text\nfine\n", Columns(), "label"),
        ("text\tlabel\nfine\tmaybe\n", Columns(), "maybe"),
        ("a\tb\tlabel\nx\ty\tup\n", Columns("a", "b"), "as many as in the other files, got two, not one; name them"),
    ],
)
def test_a_file_that_is_no_test_is_refused(data: Any, tmp_path: Path, rows: str, columns: Columns, said: str) -> None:
    path = tmp_path / "test.tsv"
    path.write_text(rows)
    with pytest.raises(DataError, match=said) as raised:
        with_test(data, path, columns)
    assert Path(raised.value.path) == path


def of_every_kind() -> list[Any]:
    tags = TaggedSplit([[word] for word in MANY], [[0] for _ in MANY])
    questions = tuple(Question(text, text, text, ()) for text in MANY)
    texts = Split(MANY, MANY, [0] * len(MANY))
    return [
        ClassificationData(get_task("mnli"), ("a", "b"), Split(["x"], ["y"], [0]), texts, {"mismatched": texts}),
        TokenClassificationData(get_task("ner"), ("O",), TaggedSplit([["x"]], [[0]]), tags),
        QuestionAnsweringData(get_task("squad"), (), questions),
    ]


@pytest.mark.parametrize("whole", of_every_kind(), ids=lambda data: data.task.name)
def test_half_of_a_large_validation_set_is_held_out(whole: Any) -> None:
    kept: Any = hold_out(whole)
    test = kept.test
    assert (len(kept.validation), len(test.validation)) == (3001, 3000)
    words = [_words(split) for split in (kept.validation, test.validation)]
    assert sorted([*words[0], *words[1]], key=int) == MANY
    assert words[0] == sorted(words[0], key=int), "in their order"
    assert len({whole.fingerprint, kept.fingerprint, test.fingerprint}) == 3
    assert hold_out(whole).fingerprint == kept.fingerprint, "always the same"
    assert kept.notes == (
        "3,000 of 6,001 validation examples are held out, to test the result on what it was not chosen by",
    )
    assert hold_out(kept) is kept
    assert not getattr(test, "more_validation", {})


def _words(split: Any) -> list[str]:
    if isinstance(split, tuple):
        return [question.question for question in split]
    return [words[0] for words in split.words] if isinstance(split, TaggedSplit) else split.texts


def test_what_is_small_or_is_no_list_of_examples_is_left_whole(data: Any) -> None:
    assert hold_out(data) is data
    passages = PassageData(get_task("masked-lm"), ("text",), tuple(MANY))
    assert hold_out(passages) is passages
