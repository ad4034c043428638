"""The answers of an artifact to single inputs, tokenised as in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mvprune.artifact import ArtifactError
from mvprune.data.hypotheses import Hypotheses
from mvprune.data.loading import DataError
from mvprune.runtime.kernel import Activations
from mvprune.serving.writing import predicted
from mvprune_core.base.errors import CompressionError
from mvprune_core.models.artifact_loading import Opened, Runtime, check_entailment, open_artifact
from mvprune_core.models.forward import padding_side
from mvprune_core.models.writing import Writer
from mvprune_core.tasks import Objective, objective_of_kind
from mvprune_core.tasks.base import Field, Input
from mvprune_core.tasks.batching import Examples, Side
from mvprune_core.tasks.probes import probes
from mvprune_core.tasks.zero_shot import zero_shot_of_inputs

_CPU = torch.device("cpu")


class Predictor:
    """An artifact that answers inputs. One call at a time; `torch.set_num_threads` sets the number of its cores.

    Attributes:
        opened: the artifact.
        fields: the parts of an input.
        writer: what writes the answers, where they are texts that the model writes; else None.
    """

    def __init__(self, opened: Opened, hypotheses: Hypotheses | None = None) -> None:
        self.opened, self._hypotheses = opened, hypotheses
        task = opened.task
        self._kind = objective_of_kind(task.kind)
        if hypotheses is not None:
            check_entailment(opened)
        self.fields = self._kind.fields(task) if hypotheses is None else (Field("text"),)
        if not self.fields:
            raise ArtifactError(
                f"the artifact is for {task.kind.name}, task {task.name}: such a model is the start of another "
                "training and answers nothing by itself"
            )
        self.writer = Writer(opened, self._kind) if self._kind.writes else None
        self._padding_side: Side = "right"
        try:
            some = probes(opened.loaded.tokenizer, opened.max_length)  # as before the model was trained
            self._padding_side = padding_side(opened.loaded.model, [some])
        except CompressionError as error:
            raise ArtifactError(error.message) from error

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        base: str | Path | None = None,
        runtime: Runtime = "dense",
        activations: Activations | None = None,
        hypotheses: Hypotheses | None = None,
    ) -> Predictor:
        """A predictor of an artifact; see `open_artifact`.

        Args:
            directory, base, runtime, activations: see there.
            hypotheses: the labels that a model of natural language inference chooses from; None: its own classes.

        Raises:
            ArtifactError: the artifact is not valid, or is for a task without answers (masked-lm).
        """
        return cls(open_artifact(directory, base=base, runtime=runtime, activations=activations), hypotheses)

    def predict(self, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        """One answer for each input.

        Args:
            inputs: texts by the names of `fields`.

        Returns:
            classification: label, its score, scores by label (fractions, their sum is 1); multi-label classification:
            labels, and scores by label, each a fraction; reranking: score and logit; regression: value; question
            answering: answer, its characters [start, end) in the context and score, the sum of the logits of its first
            and last token ("", 0 and 0 where the context has no answer); token classification: words, each with its
            tag and its characters [start, end) in the text; models that write: generated_text, what the model writes
            after the text or from it, and truncated_tokens, how many of the text's it left out, if any.

        Raises:
            DataError: the tokenizer drops all of the texts.
        """
        if self.writer:
            return predicted(self.writer, inputs)
        answers: list[dict[str, Any]] = [{}] * len(inputs)
        for names in dict.fromkeys(frozenset(given) for given in inputs):  # a tokenizer takes texts, or pairs of texts
            chosen = [number for number, given in enumerate(inputs) if given.keys() == names]
            alike = [inputs[number] for number in chosen]
            objective = self._objective(alike)
            try:
                examples = self._examples(objective)
            except CompressionError as error:  # such as a text of nothing but control characters
                raise DataError(self.fields[0].name, error.message) from error
            found = objective.answers(alike, self.opened.loaded.model, examples, _CPU)
            for number, answer in zip(chosen, found, strict=True):
                answers[number] = answer
        return answers

    def _objective(self, inputs: Sequence[Input]) -> Objective:
        if self._hypotheses is not None:
            return zero_shot_of_inputs(self._hypotheses, inputs)
        return self._kind.of_inputs(self.opened.task, self.opened.labels, inputs)

    def _examples(self, objective: Objective) -> Examples:
        loaded = self.opened.loaded
        examples = objective.validation_examples(loaded.tokenizer, loaded.config, self.opened.max_length)
        return replace(examples, padding_side=self._padding_side)


__all__ = ["Field", "Input", "Predictor"]
