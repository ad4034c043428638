"""Zero-shot classification: a model that knows whether a text entails another one chooses among labels that are named
when it is asked (Yin, Hay and Roth 2019, https://arxiv.org/abs/1909.00161)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mvprune.common.excerpts import listed
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import Task, get_task
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Input
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.classes import entailment
from mvprune_core.tasks.classification import Classification

TEMPLATE = "This example is {}."
"""The hypothesis of transformers' pipeline."""

_PLACE = "{}"
_FEWEST = 2


@dataclass(frozen=True)
class Hypotheses:
    """What a model is asked about a text: whether it entails that a label fits.

    Attributes:
        labels: those to choose from.
        template: a sentence with {} in the place of a label.
    """

    labels: tuple[str, ...]
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if len(set(self.labels)) < max(_FEWEST, len(self.labels)) or not all(label.strip() for label in self.labels):
            raise ValueError(f"candidate_labels must be two or more different labels, got {listed(self.labels)}")
        if self.template.count(_PLACE) != 1:
            raise ValueError(
                f"hypothesis_template must have {_PLACE} once, in the place of a label, got {self.template!r}"
            )

    @property
    def task(self) -> Task:
        """That of data with such labels."""
        return get_task("text-classification")

    def objective(self, data: Any) -> ZeroShot:
        """The objective of texts with such labels."""
        return ZeroShot(data, template=self.template)

    def of_inputs(self, inputs: Sequence[Input]) -> ZeroShot:
        """An objective whose validation split is these inputs, each with a `text`."""
        split = Split([given["text"] for given in inputs], None, [0] * len(inputs))
        return self.objective(ClassificationData(self.task, self.labels, Split([], None, []), split))


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
        split = self.data.validation
        texts = [text for text in split.texts for _ in self.classes]
        pairs = [self.template.replace(_PLACE, label) for _ in split.texts for label in self.classes]
        asked = replace(self.data, validation=Split(texts, pairs, [0] * len(texts)))
        return Classification(asked).validation_examples(tokenizer, config, max_length)

    def logits(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Tensor:
        """Those of entailment, shape (texts, classes)."""
        every = super(Classification, self).logits(model, examples, device, group)
        return every[:, entailment(model.config)].reshape(-1, len(self.classes))
