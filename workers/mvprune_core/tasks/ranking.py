"""Metrics of a ranking: how high the relevant documents of a query stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

DEPTH = 10
"""Documents at the top of a ranking that are looked at."""
_QUERIES = 256  # that are compared with all documents at once

Relevant = Sequence[tuple[int, float]]
"""The numbers of a query's relevant documents, and their grades, above 0; all others have the grade 0."""
Ranked = dict[str, NDArray[np.float64]]
"""By the name of a metric, its value for each query, shape (queries,)."""


def rank_metrics(top: Sequence[Sequence[int]], relevant: Sequence[Relevant]) -> Ranked:
    """The metrics of rankings, for each query.

    ndcg_at_10 = Σᵢ gᵢ / log₂(i + 1) over the first ten places i, with the grade gᵢ of the document there, divided by
    the same sum of the best ranking (Järvelin and Kekäläinen 2002, https://doi.org/10.1145/582415.582418, with the
    grade as the gain). mrr_at_10 = 1 / the place of the first relevant document, 0 beyond ten. recall_at_k = the
    fraction of the relevant documents that are among the first k.

    Args:
        top: for each query the numbers of at least the first ten documents, the best first; all, where there are fewer.
        relevant: for each query; not empty.
    """
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    found: Ranked = {name: np.zeros(len(top)) for name in ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")}
    for query, (documents, judged) in enumerate(zip(top, relevant, strict=True)):
        grades = dict(judged)
        gains = np.array([grades.get(document, 0.0) for document in documents[:DEPTH]])
        best = np.sort(np.array([*grades.values()]))[::-1][:DEPTH]
        found["ndcg_at_10"][query] = (gains @ discounts[: len(gains)]) / (best @ discounts[: len(best)])
        hits = np.flatnonzero(gains)
        found["mrr_at_10"][query] = 1 / (hits[0] + 1) if len(hits) else 0
        found["recall_at_1"][query] = np.count_nonzero(gains[:1]) / len(grades)
        found["recall_at_10"][query] = len(hits) / len(grades)
    return found


def search(queries: NDArray[Any], documents: NDArray[Any]) -> list[list[int]]:
    """For each query the numbers of the ten documents with the largest cosines, the best first.

    Args:
        queries: vectors, shape (queries, width).
        documents: vectors, shape (documents, width).
    """
    wanted, target = (functional.normalize(torch.from_numpy(one).float(), dim=-1) for one in (queries, documents))
    top: list[list[int]] = []
    for start in range(0, len(wanted), _QUERIES):
        scores = wanted[start : start + _QUERIES] @ target.T
        top += scores.topk(min(DEPTH, len(target)), dim=-1).indices.tolist()
    return top


def means(metrics: Mapping[str, NDArray[np.float64]], ending: str = "") -> dict[str, float]:
    """The means over queries, by the names of the metrics with an ending."""
    return {name + ending: float(values.mean()) for name, values in metrics.items()}
