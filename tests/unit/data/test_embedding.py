"""Embeddings: plain texts, judged documents, scored pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mvprune.data.held_out import HELD_OUT_FROM, hold_out
from mvprune.data.kinds.embedding.texts import Judgements, Linked, PlainTexts, ScoredPairs
from mvprune.data.loading import Columns, DataError, EmbeddingData, load_files, load_validation
from mvprune.data.tasks import get_task

TEXTS, SEARCH, ALIKE = (get_task(name) for name in ("embedding", "retrieval", "sentence-similarity"))
Write = Callable[[Path, str], Path]


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def loaded(*arguments: Any, **options: Any) -> EmbeddingData:
    found = load_files(*arguments, **options)
    assert isinstance(found, EmbeddingData)
    return found


def test_lines_of_text_and_a_column_of_a_table_are_texts(tmp_path: Path, write: Write) -> None:
    train, validation = (
        write(tmp_path / "a.txt", "one\n\n two \n"),
        write(tmp_path / "b.csv", "id,text\n1,three\n2,one\n"),
    )
    found = loaded(TEXTS, train, validation, Columns(text="text"))
    assert (found.train, found.validation) == (("one", "two"), PlainTexts(("three", "one")))
    assert found.columns == ("columns: text 'text'",)
    assert found.notes == ("1 of 2 validation rows are training rows too",)
    with pytest.raises(DataError, match="label_column must not be given for the task embedding, which has text_column"):
        load_files(TEXTS, train, validation, Columns(label="id"))


def test_rows_of_queries_and_documents_are_judgements(tmp_path: Path, write: Write) -> None:
    path = write(
        tmp_path / "a.jsonl",
        lines(
            {"query": "q1", "document": "a", "relevance": 1},
            {"query": "q2", "document": "b", "relevance": "2.5"},
            {"query": "q1", "document": "b", "relevance": 0},
            {"query": "q1", "document": "c", "relevance": 3},
            {"query": "", "document": "d", "relevance": 1},
            {"query": None, "document": "a", "relevance": 1},
        ),
    )
    found = loaded(SEARCH, path, path)
    assert found.validation == Judgements(("q1", "q2"), ("a", "b", "c", "d"), (((0, 1.0), (2, 3.0)), ((1, 2.5),)))
    assert found.train == ("q1", "q2", "a", "b", "c", "d")
    assert found.columns == ("columns: query 'query', document 'document', grade 'relevance'",)
    assert found.linked == Linked((("q1", "a"), ("q2", "b"), ("q1", "c")))


def test_documents_that_do_not_answer_and_margins_are_read(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.csv", "query,positive,negative,margin\nq,a,b,0.5\nq,c,d,2\n")
    found = loaded(SEARCH, path, path)
    assert found.linked == Linked((("q", "a", "b"), ("q", "c", "d")), (0.5, 2.0))
    assert found.train == ("q", "a", "c", "b", "d")
    assert found.columns == ("columns: query 'query', document 'positive', negative 'negative', margin 'margin'",)
    assert found.validation == Judgements(("q",), ("a", "c"), (((0, 1.0), (1, 1.0)),))
    path = write(tmp_path / "b.csv", "query,positive,negative\nq,a,b\n")
    assert loaded(SEARCH, path, path).linked == Linked((("q", "a", "b"),))
    with pytest.raises(DataError, match="'negative'"):
        load_validation(SEARCH, write(tmp_path / "c.csv", "query,positive,negative\nq,a,\n"), ())


def test_without_grades_each_row_is_relevant(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.tsv", "question\tcontext\nq\ta\nq\tb\n")
    found = load_validation(SEARCH, path, ())
    assert found.validation == Judgements(("q",), ("a", "b"), (((0, 1.0), (1, 1.0)),))
    assert found.columns == ("columns: query 'question', document 'context'",)


def test_rows_of_two_texts_and_a_score_are_pairs(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.csv", "sentence1,sentence2,score\na,b,5\nc,d,0.5\n")
    assert load_validation(ALIKE, path, ()).validation == ScoredPairs(("a", "c"), ("b", "d"), (5.0, 0.5))


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path, write: Write) -> None:
    one = write(tmp_path / "a.csv", "query,document,label\nq,a,1\nq,b,0\n")
    same = write(
        tmp_path / "b.jsonl", lines(*({"query": "q", "document": x, "label": y} for x, y in (("a", 1), ("b", 0))))
    )
    other = write(tmp_path / "c.csv", "query,document,label\nq,a,2\nq,b,0\n")
    prints = [load_validation(SEARCH, path, ()).fingerprint for path in (one, same, other)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("task", "text", "error"),
    [
        (SEARCH, "query,document,relevance\nq,a,0\n", "each query must have a document with a grade above 0, got none"),
        (SEARCH, "query,document,relevance\nq,a,-1\n", "'relevance' must be a grade of at least 0, got -1"),
        (SEARCH, "query,document,relevance\nq,a,x\n", "'relevance' must be a finite number, got 'x'"),
        (SEARCH, "query,document,relevance\n,a,1\n", "the queries must be at least 1, got 0"),
        (SEARCH, "query,document\nq,\n", "'document'"),
        (SEARCH, "text\nq\n", "must have queries and documents .* for the task retrieval, got one text a row"),
        (ALIKE, "text\nq\n", "must have two texts and a score a row for the task sentence-similarity"),
        (ALIKE, "sentence1,sentence2,score\na,b,nan\nc,d,1\n", "'score' must be a finite number, got 'nan'"),
        (ALIKE, "sentence1,sentence2,score\na,b,1\nc,d,1\n", "the scores must be at least two different numbers"),
        (ALIKE, "sentence1,sentence2\na,b\n", "a column must be the label"),
        (TEXTS, "number\n1\n", "a column must be the text"),
        (TEXTS, "text\n \n", "the texts must be at least 1, got 0"),
    ],
)
def test_what_is_wrong_is_said(task: Any, text: str, error: str, tmp_path: Path, write: Write) -> None:
    with pytest.raises(DataError, match=error):
        load_validation(task, write(tmp_path / "a.csv", text), ())


def test_two_columns_must_be_two(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "a.csv", "query,document\nq,a\n")
    with pytest.raises(DataError, match="the columns must be different ones, got 'query', 'query'"):
        load_validation(SEARCH, path, (), Columns(text="query", text_pair="query"))


def test_half_of_many_queries_are_held_out_and_all_documents_stay(tmp_path: Path, write: Write) -> None:
    rows = [f"q{number},d{number % 50}" for number in range(HELD_OUT_FROM)]
    path = write(tmp_path / "a.csv", "\n".join(["query,document", *rows]) + "\n")
    found = hold_out(loaded(SEARCH, path, path))
    halves = [one.validation for one in (found, found.test) if isinstance(one, EmbeddingData)]
    assert all(isinstance(half, Judgements) and len(half.documents) == 50 for half in halves)
    assert sorted(query for half in halves for query in half.queries) == sorted(f"q{n}" for n in range(HELD_OUT_FROM))  # type: ignore[union-attr]
    for half in halves:
        assert half.relevant == tuple(((int(query[1:]) % 50, 1.0),) for query in half.queries)  # type: ignore[union-attr]
