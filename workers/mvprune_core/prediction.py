"""Answers of an artifact to single inputs: its texts are read, and its outputs understood, as in evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mvprune.artifact import ArtifactError
from mvprune.data.loading import (
    ClassificationData,
    DataError,
    Question,
    QuestionAnsweringData,
    Split,
    TaggedSplit,
    TokenClassificationData,
)
from mvprune.data.tasks import TaskKind
from mvprune_core.artifact_loading import Opened, Runtime, open_artifact
from mvprune_core.batching import Examples, Side
from mvprune_core.errors import CompressionError
from mvprune_core.forward import padding_side
from mvprune_core.tasks.classification import Classification
from mvprune_core.tasks.question_answering import QuestionAnswering
from mvprune_core.tasks.token_classification import TokenClassification

_WORD = re.compile(r"\w+|[^\w\s]")
_CPU = torch.device("cpu")
_PROBES = 4, 24  # tokens

Input = Mapping[str, str]
_Objective = Classification | QuestionAnswering | TokenClassification


@dataclass(frozen=True)
class Field:
    """One part of an input: its name, and whether it has to be there."""

    name: str
    required: bool = True


class Predictor:
    """An artifact that answers. One call at a time; `torch.set_num_threads` decides how many cores it takes.

    Attributes:
        opened: the artifact.
        fields: what an input consists of.
    """

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        task = opened.task
        match task.kind:
            case TaskKind.CLASSIFICATION | TaskKind.REGRESSION:
                one, two = Field("text"), Field("text_pair", required=task.hub_id is not None)
                self.fields = (one,) if task.hub_id is not None and len(task.text_columns) == 1 else (one, two)
                self._answer = self._values if task.kind is TaskKind.REGRESSION else self._classes
                self._objective: Callable[[Sequence[Input]], _Objective] = self._classification
            case TaskKind.QUESTION_ANSWERING:
                self.fields, self._answer = (Field("question"), Field("context")), self._answers
                self._objective = self._question_answering
            case TaskKind.TOKEN_CLASSIFICATION:
                self.fields, self._answer = (Field("text"),), self._tags
                self._objective = self._tagging
            case _:
                raise ArtifactError(
                    f"the artifact is for {task.kind}, task {task.name}: such a model is the start of another training "
                    "and answers nothing by itself"
                )
        self._padding_side: Side = "right"
        try:
            self._padding_side = padding_side(opened.loaded.model, [self._examples(self._objective(self._probes()))])
        except CompressionError as error:
            raise ArtifactError(error.message) from error

    @classmethod
    def open(cls, directory: str | Path, *, base: str | Path | None = None, runtime: Runtime = "dense") -> Predictor:
        """A predictor of an artifact; see `open_artifact`.

        Raises:
            ArtifactError: the artifact is not valid, or is for a task without answers (masked-lm).
        """
        return cls(open_artifact(directory, base=base, runtime=runtime))

    def predict(self, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        """One answer for each input, which has text under the names of `fields`.

        Returns:
            classification: label, its score, scores by label (fractions, their sum is 1); regression: value; question
            answering: answer, its characters [start, end) in the context and score, the sum of the logits of its first
            and last token ("", 0 and 0 where the context has no answer); token classification: words, each with its
            tag and its characters [start, end) in the text.

        Raises:
            DataError: the tokenizer leaves nothing of the texts.
        """
        return self._answer(inputs) if inputs else []

    def _classes(self, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        answers = []
        for row in self._logits(inputs).softmax(dim=1).tolist():
            scores = dict(zip(self.opened.labels, row, strict=True))
            label = max(scores, key=scores.__getitem__)
            answers.append({"label": label, "score": scores[label], "scores": scores})
        return answers

    def _values(self, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        return [{"value": value} for value in self._logits(inputs)[:, 0].tolist()]

    def _logits(self, inputs: Sequence[Input]) -> torch.Tensor:
        logits = torch.empty(len(inputs), len(self.opened.labels))
        for paired in (False, True):  # a tokenizer takes texts, or pairs of texts
            chosen = [number for number, given in enumerate(inputs) if ("text_pair" in given) is paired]
            if not chosen:
                continue
            objective = self._classification([inputs[number] for number in chosen])
            logits[chosen] = objective.logits(self.opened.loaded.model, self._examples(objective), _CPU)
        return logits

    def _classification(self, inputs: Sequence[Input]) -> Classification:
        """Of inputs that all have a second text, or none."""
        pairs = [given["text_pair"] for given in inputs] if "text_pair" in inputs[0] else None
        split = Split([given["text"] for given in inputs], pairs, [0] * len(inputs))
        labels = () if self.opened.task.kind is TaskKind.REGRESSION else self.opened.labels
        return Classification(ClassificationData(self.opened.task, labels, _NO_TEXTS, split))

    def _answers(self, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        objective = self._question_answering(inputs)
        answers = []
        found = objective.answers(self.opened.loaded.model, self._examples(objective), _CPU, count=1)
        for given, spans in zip(inputs, found, strict=True):
            begin, end, score = (spans[0].begin, spans[0].end, spans[0].score) if spans else (0, 0, None)
            answers.append({"answer": given["context"][begin:end], "score": score, "start": begin, "end": end})
        return answers

    def _question_answering(self, inputs: Sequence[Input]) -> QuestionAnswering:
        questions = tuple(Question("", given["question"], given["context"], ()) for given in inputs)
        return QuestionAnswering(QuestionAnsweringData(self.opened.task, (), questions))

    def _tags(self, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        words = [list(_WORD.finditer(given["text"])) for given in inputs]
        objective = self._tagging(inputs)
        try:
            examples = self._examples(objective)
        except CompressionError as error:  # such as control characters alone
            raise DataError("text", error.message) from error
        tags = objective.tags(self.opened.loaded.model, examples, _CPU)
        return [
            {
                "words": [
                    {"word": word[0], "tag": tag, "start": word.start(), "end": word.end()}
                    for word, tag in zip(sentence, its_tags, strict=True)
                ]
            }
            for sentence, its_tags in zip(words, tags, strict=True)
        ]

    def _tagging(self, inputs: Sequence[Input]) -> TokenClassification:
        split = TaggedSplit([_WORD.findall(given["text"]) for given in inputs], [])
        return TokenClassification(
            TokenClassificationData(self.opened.task, self.opened.labels, TaggedSplit([], []), split)
        )

    def _examples(self, objective: _Objective) -> Examples:
        loaded = self.opened.loaded
        examples = objective.validation_examples(loaded.tokenizer, loaded.config, self.opened.max_length)
        return replace(examples, padding_side=self._padding_side)

    def _probes(self) -> list[Input]:
        """A short and a longer input, of what the tokenizer knows."""
        tokenizer = self.opened.loaded.tokenizer
        special = set(tokenizer.all_special_ids)
        known = [token for token in sorted(tokenizer.get_vocab().values()) if token not in special]
        return [
            {field.name: tokenizer.decode(known[-count:]) for field in self.fields if field.required}
            for count in _PROBES
        ]


_NO_TEXTS = Split([], None, [])
