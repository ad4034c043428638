"""Span decoding: the best answers to a question, from the logits of all windows of its passage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ANSWER_TOKENS = 30
CANDIDATES = 20  # best starts and best ends that are combined

Characters = NDArray[np.int32]


@dataclass(frozen=True)
class Span:
    """The characters [begin, end) of a passage as an answer; (0, 0) where there is no answer.

    Attributes:
        score: the sum of the logits of its first and last token.
        begin: its first character.
        end: the character after its last.
    """

    score: float
    begin: int
    end: int


def best_spans(
    start_logits: NDArray[Any], end_logits: NDArray[Any], begins: Characters, ends: Characters, count: int
) -> list[Span]:
    """The most likely answers within one window, best first.

    Args:
        start_logits: of each token to be the answer's first, shape (padded tokens,).
        end_logits: of each token to be its last.
        begins: first character of each token in the passage, shape (tokens,); −1 outside of the passage.
        ends: the character after its last one.
        count: of spans at most.

    Returns:
        Spans of at most 30 tokens from the 20 best starts to the 20 best ends (as for BERT, Devlin et al. 2019,
        https://arxiv.org/abs/1810.04805, section 4.2: the largest sum of both logits).
    """
    inside = begins >= 0
    first, last = (_largest(logits[: len(begins)], inside) for logits in (start_logits, end_logits))
    length = last[None, :] - first[:, None] + 1
    rows, columns = np.nonzero((length > 0) & (length <= ANSWER_TOKENS))
    first, last = first[rows], last[columns]
    scores = start_logits[first] + end_logits[last]
    ranked = np.argsort(-scores, kind="stable")[:count]
    return [Span(float(scores[i]), int(begins[first[i]]), int(ends[last[i]])) for i in ranked if np.isfinite(scores[i])]


def best_of_windows(windows: Iterable[tuple[float, list[Span]]], count: int, *, allows_no_answer: bool) -> list[Span]:
    """The most likely answers over all windows of a question, best first.

    Args:
        windows: of each, the score of the null span (its first token) and its best spans.
        count: of answers at most.
        allows_no_answer: whether the null span is an answer too. Its score is the minimum over the windows, since one
            window with an answer suffices. It is the best answer where its score is above that of every other span.
    """
    best: dict[tuple[int, int], float] = {}
    null = np.inf
    for null_score, spans in windows:
        null = min(null, null_score)
        for span in spans:
            place = span.begin, span.end
            best[place] = max(best.get(place, -np.inf), span.score)
    found = [Span(score, begin, end) for (begin, end), score in best.items()]
    if allows_no_answer:
        found.append(Span(null, 0, 0))
    return sorted(found, key=lambda span: -span.score)[:count]


def _largest(logits: NDArray[Any], allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    positions = np.flatnonzero(allowed)
    return positions[np.argsort(-logits[positions], kind="stable")[:CANDIDATES]]
