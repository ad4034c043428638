"""Extractive question answering: the span of a passage that answers a question.

A passage longer than the model's input is cut into overlapping windows. In training, a window without the whole answer
points at its first token; in evaluation, the best span over all windows of a question is its answer, or, where the task
allows it, that there is none (as for BERT, Devlin et al. 2019, https://arxiv.org/abs/1810.04805, sections 4.2 and 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mvprune.data.kinds.base import Task
from mvprune.data.loading import Question, QuestionAnsweringData
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Field, Input, Objective
from mvprune_core.tasks.batching import Examples, Indices, add_inputs, check_offsets, pad_token, tokenize
from mvprune_core.tasks.chance import SanityFailure
from mvprune_core.tasks.losses import Loss, SpanCrossEntropy
from mvprune_core.tasks.metrics import answer_metrics, answer_scores
from mvprune_core.tasks.outputs import DistilledOutput, PositionLogits
from mvprune_core.tasks.passes import forward_passes
from mvprune_core.tasks.resampling import SampleMetric, mean_of
from mvprune_core.tasks.spans import Characters, Span, best_of_windows, best_spans

QUESTION_TOKENS = 64
_NOTES = ("question", "begin", "end")


@dataclass(frozen=True)
class QuestionAnswering(Objective):
    """The span of a passage that answers a question."""

    data: QuestionAnsweringData
    kind: ClassVar[str] = "question-answering"
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (PositionLogits("start_logits"), PositionLogits("end_logits"))

    def loss(self, config: Any) -> Loss:
        return SpanCrossEntropy()

    def configure(self, config: Any) -> bool:
        config.num_labels = 2  # start and end
        return True

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        windows = self._windows(self.data.train, tokenizer, max_length)
        positions = torch.tensor(
            [
                _target(self.data.train[number], begins, ends)
                for (number,), begins, ends in zip(*(windows.notes[name] for name in _NOTES), strict=True)
            ]
        )
        targets = {"start_positions": positions[:, 0], "end_positions": positions[:, 1]}
        return Examples(windows.inputs, targets, windows.pad_token)

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        return self._windows(self.data.validation, tokenizer, max_length)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> list[str]:
        found = self.spans(model, examples, device, count=1, group=group)
        return [
            question.context[spans[0].begin : spans[0].end] if spans else ""
            for question, spans in zip(self.data.validation, found, strict=True)
        ]

    def measure(self, predictions: list[str]) -> dict[str, float]:
        return answer_metrics(predictions, self._accepted, allows_no_answer=self.data.task.allows_no_answer)

    def sample_metric(self, predictions: list[str]) -> tuple[int, SampleMetric] | None:
        found = answer_scores(predictions, self._accepted, allows_no_answer=self.data.task.allows_no_answer)
        scores = found.get(self.data.task.primary_metric)
        return None if scores is None else (len(predictions), mean_of(scores))

    @property
    def _accepted(self) -> list[list[str]]:
        """The answers to each question of the validation split that are right."""
        return [[text for text, _ in question.answers] for question in self.data.validation]

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of answering nothing."""
        return [self.measure([""] * len(self.data.validation))]

    def sanity_check(self, predictions: list[str]) -> SanityFailure | None:
        found, silent = (self.measure(texts)["f1"] for texts in (predictions, [""] * len(predictions)))
        if found > silent:
            return None
        return SanityFailure(f"has the f1 {found:.4f}, no better than {silent:.4f} of answering nothing")

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        return Field("question"), Field("context")

    @classmethod
    def of_inputs(cls, task: Task, labels: tuple[str, ...], inputs: Sequence[Input]) -> Self:
        questions = tuple(Question("", given["question"], given["context"], ()) for given in inputs)
        return cls(QuestionAnsweringData(task, (), questions))

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        answers = []
        for given, spans in zip(inputs, self.spans(model, examples, device, count=1), strict=True):
            begin, end, score = (spans[0].begin, spans[0].end, spans[0].score) if spans else (0, 0, None)
            answers.append({"answer": given["context"][begin:end], "score": score, "start": begin, "end": end})
        return answers

    def spans(
        self, model: nn.Module, examples: Examples, device: torch.device, count: int, group: Group = ALONE
    ) -> list[list[Span]]:
        """The `count` best answers to each question of the validation split, best first.

        Args:
            model: the model, left in evaluation mode.
            examples: of `validation_examples`.
            device: where the model is.
            count: of answers at most. There is none where no window holds a span.
            group: the ranks, which share the forward passes.
        """
        windows: list[list[tuple[float, list[Span]]]] = [[] for _ in self.data.validation]
        numbers, begins, ends = (examples.notes[name] for name in _NOTES)

        def read(indices: Indices, output: Any) -> list[tuple[float, list[Span]]]:
            starts, stops = (part.float().cpu().numpy() for part in (output.start_logits, output.end_logits))
            return [
                (float(first + last), best_spans(begin, end, begins[index], ends[index], count))
                for index, begin, end, first, last in zip(
                    indices, starts, stops, starts[:, 0], stops[:, 0], strict=True
                )
            ]

        for indices, found in forward_passes(model, examples, device, read, group=group):
            for index, window in zip(indices, found, strict=True):
                windows[numbers[index][0]].append(window)
        allowed = self.data.task.allows_no_answer
        return [best_of_windows(each, count, allows_no_answer=allowed) for each in windows]

    def _windows(self, questions: Sequence[Question], tokenizer: Any, max_length: int) -> Examples:
        check_offsets(tokenizer)
        if max_length < (least := self.data.task.kind.min_tokens):
            raise ValueError(f"training.max_length must be at least {least} for {self.kind}, got {max_length}")
        return _windows(questions, tokenizer, max_length)


def _windows(questions: Sequence[Question], tokenizer: Any, max_length: int) -> Examples:
    """Questions with their passages, one example a window.

    Notes of a window: `question`, the number of its question; `begin` and `end`, the characters [begin, end) of the
    passage for each token, −1 outside of the passage.
    """
    # A question takes a third of a window at most and the overlap a third: the last third is new text.
    texts = [_shorten(question.question, tokenizer, min(QUESTION_TOKENS, max_length // 3)) for question in questions]
    options = {
        "truncation": "only_second",
        "max_length": max_length,
        "stride": max_length // 3,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    inputs: dict[str, list[NDArray[np.int32]]] = {}
    notes: dict[str, list[NDArray[np.int32]]] = {name: [] for name in _NOTES}
    first = 0
    for encodings in tokenize(tokenizer, texts, [question.context for question in questions], **options):
        add_inputs(inputs, tokenizer, encodings)
        for row, question in enumerate(encodings["overflow_to_sample_mapping"]):
            spans = np.array(encodings["offset_mapping"][row], dtype=np.int32)
            spans[[part != 1 for part in encodings.sequence_ids(row)]] = -1
            for name, note in zip(_NOTES, ([first + question], spans[:, 0], spans[:, 1]), strict=True):
                notes[name].append(np.array(note, dtype=np.int32))
        first += encodings["overflow_to_sample_mapping"][-1] + 1
    return Examples(inputs, {}, pad_token(tokenizer), notes)


def _shorten(question: str, tokenizer: Any, tokens: int) -> str:
    offsets = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return question if len(offsets) <= tokens else question[: offsets[tokens - 1][1]]


def _target(question: Question, begins: Characters, ends: Characters) -> tuple[int, int]:
    """First and last token of the question's first answer; (0, 0) where the window does not hold all of one."""
    if not question.answers:
        return 0, 0
    text, begin = question.answers[0]
    begin += len(text) - len(text.lstrip())  # no token covers white space
    end = begin + len(text.strip())
    inside = begins >= 0
    first = np.flatnonzero(inside & (begins <= begin) & (ends > begin))
    last = np.flatnonzero(inside & (begins < end) & (ends >= end))
    return (int(first[0]), int(last[-1])) if len(first) and len(last) else (0, 0)
