"""The objective of a model that chooses among labels which are named when it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mvprune.data.hypotheses import TEMPLATE, Hypotheses
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Input
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.classes import entailment
from mvprune_core.tasks.classification import Classification


def zero_shot(hypotheses: Hypotheses, data: Any) -> ZeroShot:
    """The objective of texts with such labels."""
    return ZeroShot(data, template=hypotheses.template)


def zero_shot_of_inputs(hypotheses: Hypotheses, inputs: Sequence[Input]) -> ZeroShot:
    """An objective whose validation split is these inputs, each with a `text`."""
    split = Split([given["text"] for given in inputs], None, [0] * len(inputs))
    task = get_task("text-classification")
    return zero_shot(hypotheses, ClassificationData(task, hypotheses.labels, Split([], None, []), split))


@dataclass(frozen=True)
class ZeroShot(Classification):
    """Classes that the model was not trained for: those of the data.

    The score of a class is the logit of entailment of its hypothesis, and the probabilities are the softmax of these
    over the classes, as in the pipeline zero-shot-classification of transformers.
    """

    template: str = TEMPLATE

    def class_order(self, config: Any) -> None:
        return None

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """Each text with the hypothesis of each class, one after the other."""
        split, hypotheses = self.data.validation, Hypotheses(self.classes, self.template)
        texts = [text for text in split.texts for _ in self.classes]
        pairs = [hypotheses.about(label) for _ in split.texts for label in self.classes]
        asked = replace(self.data, validation=Split(texts, pairs, [0] * len(texts)))
        return Classification(asked).validation_examples(tokenizer, config, max_length)

    def logits(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Tensor:
        """Those of entailment, shape (texts, classes)."""
        every = super(Classification, self).logits(model, examples, device, group)
        return every[:, entailment(model.config)].reshape(-1, len(self.classes))
