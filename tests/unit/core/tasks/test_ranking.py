"""nDCG, MRR and recall against the formulas by hand and against sentence-transformers."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sklearn.metrics import ndcg_score

from mvprune_core.tasks.ranking import means, rank_metrics, search


def test_the_metrics_are_those_of_the_formulas() -> None:
    found = rank_metrics([[4, 2, 0], [1, 3, 5]], [((2, 3.0), (0, 1.0), (9, 2.0)), ((7, 1.0),)])
    gained = 3 / math.log2(3) + 1 / math.log2(4)
    best = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert found["ndcg_at_10"].tolist() == pytest.approx([gained / best, 0])
    assert found["mrr_at_10"].tolist() == [0.5, 0]
    assert found["recall_at_1"].tolist() == [0, 0]
    assert found["recall_at_10"].tolist() == pytest.approx([2 / 3, 0])
    assert means(found, "_both")["mrr_at_10_both"] == 0.25


def test_ndcg_of_grades_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    scores, grades = draw.normal(size=(20, 30)), draw.integers(0, 4, (20, 30)).astype(float)
    grades[:, 0] += 1
    top = [np.argsort(-row)[:10].tolist() for row in scores]
    relevant = [tuple((number, grade) for number, grade in enumerate(row) if grade) for row in grades]
    assert rank_metrics(top, relevant)["ndcg_at_10"].mean() == pytest.approx(ndcg_score(grades, scores, k=10))


def test_a_search_is_measured_as_by_sentence_transformers() -> None:
    draw, choose = np.random.default_rng(1), random.Random(1)
    documents = draw.normal(size=(60, 8)).astype(np.float32)
    relevant = [choose.sample(range(60), choose.randint(1, 4)) for _ in range(300)]
    queries = np.stack([documents[one].mean(0) for one in relevant]) + draw.normal(size=(300, 8)).astype(np.float32) / 2
    found = means(rank_metrics(search(queries, documents), [tuple((d, 1.0) for d in one) for one in relevant]))

    evaluator = InformationRetrievalEvaluator(
        {f"q{number}": "" for number in range(300)},
        {f"d{number}": "" for number in range(60)},
        {f"q{number}": {f"d{one}" for one in some} for number, some in enumerate(relevant)},
        write_csv=False,
    )
    cosines = (
        torch.nn.functional.normalize(torch.from_numpy(queries).float())
        @ torch.nn.functional.normalize(torch.from_numpy(documents)).T
    )
    ranked = [[{"corpus_id": f"d{one}", "score": float(row[one])} for one in range(60)] for row in cosines]
    theirs = evaluator.compute_metrics(ranked)
    assert found["ndcg_at_10"] == pytest.approx(theirs["ndcg@k"][10], abs=1e-6)
    assert found["mrr_at_10"] == pytest.approx(theirs["mrr@k"][10], abs=1e-6)
    assert found["recall_at_1"] == pytest.approx(theirs["recall@k"][1], abs=1e-6)
    assert found["recall_at_10"] == pytest.approx(theirs["recall@k"][10], abs=1e-6)


def test_fewer_documents_than_places_are_all_ranked() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert [row[0] for row in search(vectors * 2, vectors)] == [0, 1, 2]
    assert (
        rank_metrics(search(vectors, vectors), [((number, 1.0),) for number in range(3)])["ndcg_at_10"].tolist()
        == [1] * 3
    )
