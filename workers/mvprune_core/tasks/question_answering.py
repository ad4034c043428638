"""Extractive question answering: the span of a passage that answers a question.

A passage longer than the model's input is cut into overlapping windows. In training, a window without the whole answer
points at its first token; in evaluation, the best span over all windows of a question is its answer (as for BERT,
Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForQuestionAnswering

from mvprune_core.batching import Examples, add_inputs, evaluation_batches, pad_token, tokenize
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.metrics import exact_match, token_f1
from mvprune_core.squad import Question, QuestionAnsweringData
from mvprune_core.tasks.base import EVALUATION_BATCH

SHORTEST_WINDOW = 24
QUESTION_TOKENS = 64
ANSWER_TOKENS = 30
CANDIDATES = 20  # best starts and best ends that are combined

Spans = NDArray[np.int32]


@dataclass(frozen=True)
class _Window:
    """One tokenised piece of a passage.

    Attributes:
        question: index of the question in its split.
        spans: characters [start, end) of the passage for each token, shape (tokens, 2); −1 outside of the passage.
    """

    question: int
    spans: Spans


@dataclass(frozen=True)
class QuestionAnswering:
    """The objective of `QuestionAnsweringData`."""

    data: QuestionAnsweringData

    @property
    def auto_class(self) -> Any:
        return AutoModelForQuestionAnswering

    def configure(self, config: Any) -> bool:
        config.num_labels = 2  # start and end
        return True

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        inputs: dict[str, list[NDArray[np.int32]]] = {}
        targets: list[tuple[int, int]] = []
        for window in _windows(self.data.train, tokenizer, max_length, inputs):
            targets.append(_target(self.data.train[window.question], window.spans))
        positions = torch.tensor(targets)
        return Examples(
            inputs, {"start_positions": positions[:, 0], "end_positions": positions[:, 1]}, pad_token(tokenizer)
        )

    def evaluate(self, model: nn.Module, tokenizer: Any, max_length: int, device: torch.device) -> dict[str, float]:
        inputs: dict[str, list[NDArray[np.int32]]] = {}
        windows = list(_windows(self.data.validation, tokenizer, max_length, inputs))
        examples = Examples(inputs, {}, pad_token(tokenizer))
        best: dict[int, tuple[float, str]] = {}
        model.eval()
        with torch.inference_mode():
            for indices in evaluation_batches(examples.lengths, EVALUATION_BATCH):
                output = model(**examples.batch(indices, device))
                starts, ends = output.start_logits.float().cpu().numpy(), output.end_logits.float().cpu().numpy()
                for row, index in enumerate(indices):
                    window = windows[index]
                    found = best_span(starts[row], ends[row], window.spans)
                    if found is not None and found[0] > best.get(window.question, (-np.inf, ""))[0]:
                        score, start, end = found
                        best[window.question] = score, self.data.validation[window.question].context[start:end]
        return self._score([best.get(number, (0.0, ""))[1] for number in range(len(self.data.validation))])

    def _score(self, predictions: Sequence[str]) -> dict[str, float]:
        pairs = list(zip(predictions, self.data.validation, strict=True))
        return {
            name: float(np.mean([max(measure(said, text) for text, _ in question.answers) for said, question in pairs]))
            for name, measure in (("exact_match", exact_match), ("f1", token_f1))
        }


def best_span(starts: NDArray[Any], ends: NDArray[Any], spans: Spans) -> tuple[float, int, int] | None:
    """The most likely answer within one window.

    Args:
        starts: logits of each token to be the answer's first, shape (padded tokens,).
        ends: logits of each token to be its last.
        spans: characters of each token, shape (tokens, 2), −1 outside of the passage.

    Returns:
        Score (sum of both logits), first character and end of the span in the passage; None where the window holds no
        span of at most 30 tokens among the 20 best starts and ends.
    """
    inside = spans[:, 0] >= 0
    best_starts = _largest(starts[: len(spans)], inside)
    best_ends = _largest(ends[: len(spans)], inside)
    length = best_ends[None, :] - best_starts[:, None] + 1
    scores = starts[best_starts][:, None] + ends[best_ends][None, :]
    scores = np.where((length > 0) & (length <= ANSWER_TOKENS), scores, -np.inf)
    if scores.size == 0 or not np.isfinite(scores.max()):
        return None
    row, column = np.unravel_index(scores.argmax(), scores.shape)
    return float(scores[row, column]), int(spans[best_starts[row], 0]), int(spans[best_ends[column], 1])


def _largest(logits: NDArray[Any], allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    positions = np.flatnonzero(allowed)
    return positions[np.argsort(-logits[positions], kind="stable")[:CANDIDATES]]


def _windows(
    questions: Sequence[Question], tokenizer: Any, max_length: int, inputs: dict[str, list[NDArray[np.int32]]]
) -> Iterator[_Window]:
    """Tokenises questions with their passages; what the model reads is appended to `inputs`, one entry a window."""
    if not tokenizer.is_fast:
        raise CompressionError(
            Reason.INVALID_MODEL, "the model's tokenizer cannot say where its tokens stand; a tokenizer.json is needed"
        )
    if max_length < SHORTEST_WINDOW:
        raise ValueError(f"training.max_length: {max_length} given; question answering needs {SHORTEST_WINDOW} or more")
    # A third of a window at most for the question, and a third for the overlap: something new is left in each.
    texts = [_shorten(question.question, tokenizer, min(QUESTION_TOKENS, max_length // 3)) for question in questions]
    options = {
        "truncation": "only_second",
        "max_length": max_length,
        "stride": max_length // 3,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    first = 0
    for encodings in tokenize(tokenizer, texts, [question.context for question in questions], **options):
        add_inputs(inputs, tokenizer, encodings)
        for row, question in enumerate(encodings["overflow_to_sample_mapping"]):
            spans = np.array(encodings["offset_mapping"][row], dtype=np.int32)
            spans[[part != 1 for part in encodings.sequence_ids(row)]] = -1
            yield _Window(first + question, spans)
        first += encodings["overflow_to_sample_mapping"][-1] + 1


def _shorten(question: str, tokenizer: Any, tokens: int) -> str:
    offsets = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return question if len(offsets) <= tokens else question[: offsets[tokens - 1][1]]


def _target(question: Question, spans: Spans) -> tuple[int, int]:
    """First and last token of the question's first answer; (0, 0) where the window does not hold all of it."""
    text, begin = question.answers[0]
    end = begin + len(text)
    inside = spans[:, 0] >= 0
    first = np.flatnonzero(inside & (spans[:, 0] <= begin) & (spans[:, 1] > begin))
    last = np.flatnonzero(inside & (spans[:, 0] < end) & (spans[:, 1] >= end))
    return (int(first[0]), int(last[-1])) if len(first) and len(last) else (0, 0)
