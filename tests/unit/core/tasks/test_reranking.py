"""Reranking: queries with candidates, metrics of rankings, and scores that are those of the cross-encoder."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score
from starlette.testclient import TestClient
from tests.unit.core.conftest import NEUTRAL
from tests.unit.serving.descriptions import check_description
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification, pipeline

from mvprune.data.held_out import HELD_OUT_FROM, hold_out
from mvprune.data.kinds.reranking import measured_queries, queries_of
from mvprune.data.loading import ClassificationData, DataError, Split, load_files, load_rows
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune.serving.app import application
from mvprune.serving.requests import Limits
from mvprune_core import Training, compress, load_task
from mvprune_core.evaluation import evaluate
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_for

TASK = get_task("reranking")
LEARNED = Training(max_steps=60, batch_size=32, learning_rate=5e-3)


def write(path: Path, queries: int, seed: int) -> Path:
    """A document is relevant if it has the query's word: 2 if it has nothing else."""
    source = random.Random(seed)
    with path.open("w") as file:
        for number in range(queries):
            word = source.choice(["good", "bad", "fine"])
            for _ in range(5):
                grade = source.choice([0, 0, 0, 1, 2])
                others = [one for one in ("good", "bad", "fine", "poor") if one != word]
                document = [source.choice(others) if not grade else word, *source.choices(NEUTRAL, k=2 * (grade < 2))]
                row = {"query": f"{word} {NEUTRAL[number % 20]}", "passage": " ".join(document), "relevance": grade}
                print(json.dumps(row), file=file)
    return path


def data_of(rows: list[tuple[str, str, float]]) -> Any:
    split = Split(*([row[place] for row in rows] for place in range(3)))  # type: ignore[arg-type]
    return objective_for(ClassificationData(TASK, (), split, split))


def test_metrics_are_means_over_queries() -> None:
    source = np.random.default_rng(0)
    rows, scores, expected, places = [], [], [], []
    for query in range(20):
        grades, values = source.integers(0, 4, size=12) * (source.random(12) < 0.4), source.normal(size=12)
        rows += [(f"q{query}", f"d{number}", float(grade)) for number, grade in enumerate(grades)]
        scores += [*values]
        if grades.any():
            expected.append(ndcg_score(grades[None], values[None], k=10))
            first = np.flatnonzero(grades[np.argsort(-values)] > 0)[0]
            places.append(1 / (first + 1) if first < 10 else 0.0)
    order = source.permutation(len(rows))  # the rows of a query need not follow each other
    objective = data_of([rows[number] for number in order])
    predictions = np.array(scores)[order]
    found = objective.measure(predictions)
    assert found == pytest.approx({"ndcg_at_10": np.mean(expected), "mrr_at_10": np.mean(places)}, abs=1e-5)
    count, metric = objective.sample_metric(predictions)
    assert count == len(expected)
    assert metric(np.ones(count)) == pytest.approx(found["ndcg_at_10"])


def test_a_constant_score_gains_nothing_by_the_order_of_the_data() -> None:
    objective = data_of([(f"q{n // 4}", f"d{n}", float(n % 4 == 0)) for n in range(400)])
    assert objective.measure(np.zeros(400))["mrr_at_10"] == 0.25, "the relevant one comes last"
    [chance] = objective.constant_metrics(None)
    assert chance["mrr_at_10"] == pytest.approx(np.mean([1, 1 / 2, 1 / 3, 1 / 4]), abs=0.02)
    assert objective.sanity_check(np.array([float(n % 4 == 0) for n in range(400)])) is None
    assert "the other way" in objective.sanity_check(-np.array([float(n % 4 == 0) for n in range(400)])).fit


def rows_of(*rows: tuple[str, str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(("question", "answer", "label"), row, strict=True)) for row in rows]


GOOD_ROWS = rows_of(
    ("q", "a", 1), ("q", "b", 0), ("p", "a", 0), ("p", "c", 2), ("o", "d", 1), ("n", "e", 0), ("n", "f", 0)
)


def test_queries_without_a_relevant_document_are_left_out_and_noted() -> None:
    found: Any = load_rows(TASK, GOOD_ROWS, GOOD_ROWS, name="d")
    assert (found.validation.texts[0], found.validation.pairs[0]) == ("q", "a")
    assert len(queries_of(found.validation)) == 4
    assert measured_queries(found.validation) == [[0, 1], [2, 3]]
    assert any(note.startswith("2 of 4 queries of d (validation) are without a relevant") for note in found.notes)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            rows_of(("q", "a", 1), ("q", "b", -1)),
            "for a document that is not relevant, or more, got -1",
        ),
        (
            rows_of(("q", "a", 1), ("p", "b", 0)),
            "a relevant document and others beside it; .* of 2 queries",
        ),
        (rows_of(("q", "a", "yes"), ("q", "b", 0)), "the label must be a number"),
        (
            [{"text": "q", "label": 1}, {"text": "p", "label": 0}],
            "must have two texts, a query and a document",
        ),
    ],
)
def test_what_is_wrong_is_said_before_training(rows: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load_rows(TASK, rows, rows, name="d")


def test_the_documents_of_a_query_are_not_held_out_one_by_one() -> None:
    rows = rows_of(*((f"q{n // 4}", f"d{n}", n % 4 == 0) for n in range(HELD_OUT_FROM)))
    found = load_rows(TASK, rows, rows, name="d")
    assert hold_out(found) is found


@pytest.fixture
def cross_encoder(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Callable[..., Path]:
    """A BERT with one output, and keys of its config.json."""

    def make(**keys: Any) -> Path:
        torch.manual_seed(2)
        folder = save(BertForSequenceClassification(bert_config(num_labels=1)))
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
        return folder

    return make


@pytest.mark.parametrize("problem", [None, "multi_label_classification", "regression"])
def test_a_cross_encoder_keeps_its_scores(
    cross_encoder: Callable[..., Path], tmp_path: Path, problem: str | None
) -> None:
    folder = cross_encoder(**({} if problem is None else {"problem_type": problem}))
    rows: Any = load_rows(TASK, GOOD_ROWS, GOOD_ROWS, name="d")
    texts = [{"text": "good word1", "text_pair": "bad"}, {"text": "fine", "text_pair": "word2 word3"}]
    exact: dict[str, Any] = {"weight_dtype": "fp32", "embedding_dtype": "fp32", "keep_fine_tuned": True}
    compress(folder, rows, density=1.0, **exact).save(tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "config.json").read_text())["problem_type"]
    assert kept == (problem or "multi_label_classification"), "what it means is the same"
    plain = export(tmp_path / "out", tmp_path / "plain", to="dense").folder
    before, after = (
        [one["score"] for one in pipeline("text-classification", model=str(one_folder), device="cpu")(texts)]  # type: ignore[call-overload]
        for one_folder in (folder, plain)
    )
    assert after == pytest.approx(before, abs=1e-5)
    served = Predictor.open(tmp_path / "out").predict(
        [{"query": one["text"], "document": one["text_pair"]} for one in texts]
    )
    assert [one["score"] for one in served] == pytest.approx(before, abs=1e-5)


@pytest.mark.slow
def test_a_pruned_reranker_ranks_and_serves(one_layer: Path, tmp_path: Path) -> None:
    train, dev = write(tmp_path / "train.jsonl", 150, 0), write(tmp_path / "dev.jsonl", 60, 1)
    data = load_task("reranking", train=train, validation=dev)
    result = compress(one_layer, data, density=0.5, method="magnitude", training=LEARNED)
    assert result.metrics["eval/ndcg_at_10"] > 0.8
    assert result.metrics["above_constant"] > 0.1
    assert "delta_low/ndcg_at_10" in result.metrics
    result.save(tmp_path / "out")
    assert 'pipeline_tag: "text-ranking"' in (tmp_path / "out" / "README.md").read_text()
    found = evaluate(tmp_path / "out", dev, runtime="sparse")
    assert found.metrics == pytest.approx({name: result.metrics[f"eval/{name}"] for name in found.metrics}, abs=1e-5)

    predictor = Predictor.open(tmp_path / "out", runtime="sparse")
    plain = export(tmp_path / "out", tmp_path / "plain", to="dense").folder
    model = AutoModelForSequenceClassification.from_pretrained(plain)
    texts = ["good word1", "bad", "good"]
    tokens = AutoTokenizer.from_pretrained(plain)(["good word4"] * 3, texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**tokens).logits[:, 0]
    with TestClient(application(predictor, {"model": "tiny"}, Limits()), base_url="http://localhost") as client:
        asked = {"query": "good word4", "texts": texts}
        assert "/rerank" in check_description(client)
        answers = client.post("/rerank", json=asked | {"return_text": True}).json()
        assert [one["index"] for one in answers] == logits.argsort(descending=True).tolist()
        assert [one["text"] for one in answers] == [texts[one["index"]] for one in answers]
        scores = [one["score"] for one in answers]
        assert scores == pytest.approx(logits.sigmoid().sort(descending=True).values.tolist(), abs=1e-4)
        raw = client.post("/rerank", json=asked | {"raw_scores": True, "truncate": True}).json()
        assert [one["score"] for one in raw] == pytest.approx(logits.sort(descending=True).values.tolist(), abs=1e-3)
        for wrong, field, status in (
            ({"texts": []}, "texts", 422),
            ({"texts": ["a"] * 65}, "texts", 413),
            ({"texts": ["a", " "]}, "texts[1]", 422),
            ({"query": 3}, "query", 422),
            ({"raw_scores": 1}, "raw_scores", 422),
            ({"truncate": False}, "truncate", 422),
            ({"topk": 1}, "topk", 422),
        ):
            refused = client.post("/rerank", json=asked | wrong)
            assert (refused.status_code, refused.json()["error"]["field"]) == (status, field)


def test_files_are_read_by_well_known_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", 5, 0)
    found: Any = load_files(TASK, path, path)
    assert found.columns == ("columns: text 'query', second text 'passage', label 'relevance'",)
