"""What a cross-encoder says of the relevance of a document: by one logit, or by classes that are grades."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from mvprune_core.tasks.classes import class_names
from mvprune_core.tasks.losses import Batch, Loss
from mvprune_core.tasks.outputs import DistilledOutput, kl_divergence

COMPARED = 2
"""Documents of a query that are compared with each other."""

_TWO = (("irrelevant", "relevant"), ("not_relevant", "relevant"), ("no", "yes"), ("false", "true"))


def relevance(logits: Tensor) -> Tensor:
    """The logit of the relevance, shape (documents,), from the outputs of a model, (documents, outputs).

    One output is this logit. Of C classes, the grades 0 to C − 1 with the probabilities p, the relevance is the
    expected grade as a fraction of the highest one, r = Σ c · p_c / (C − 1), and its logit
    log Σ c · p_c − log Σ (C − 1 − c) · p_c. For two classes that is the difference of their logits.
    """
    if logits.shape[-1] == 1:
        return logits[..., 0]
    grades = torch.arange(logits.shape[-1], device=logits.device, dtype=logits.dtype).log()
    return (logits + grades).logsumexp(-1) - (logits + grades.flip(0)).logsumexp(-1)


def has_grades(config: Any) -> bool:
    """Whether a model has a head whose classes are grades: it was trained with it, and they have numbers from 0, names
    such as LABEL_0, or are called irrelevant and relevant, no and yes, false and true."""
    is_trained = any("ForSequenceClassification" in name for name in config.architectures or ())
    return is_trained and are_grades(class_names(config))


def are_grades(names: list[str]) -> bool:
    """Whether the names of two or more classes, in the order of the logits, are those of grades."""
    numbers = [re.fullmatch(r"(?:LABEL_)?(\d+)", name) for name in names]
    if all(numbers):
        return len(names) > 1 and [int(found[1]) for found in numbers if found] == [*range(len(names))]
    return tuple(name.strip().casefold().replace(" ", "_") for name in names) in _TWO


@dataclass(frozen=True)
class Scores(DistilledOutput):
    """The outputs of a cross-encoder, (batch, outputs): the loss is (t − s)² of one logit, and the KL divergence of
    classes. Logits may be large: they are stored in fp32."""

    per_token: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float32
    difference: ClassVar[str] = "mean difference"

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        if student.shape[-1] == 1:
            return functional.mse_loss(student, teacher)
        return kl_divergence(student, teacher, temperature).mean()


@dataclass(frozen=True)
class Margins(Scores):
    """Of which a student learns only the differences between the two documents of a query, which follow each other:
    the loss is ((t₁ − t₂) − (s₁ − s₂))² of their `relevance` (MarginMSE, Hofstätter et al. 2020,
    https://arxiv.org/abs/2010.02666, equation 6). So a teacher may have another number of outputs, and another zero."""

    def compared(self, student: Tensor, stored: Any, tokens: Tensor, temperature: float) -> Tensor:
        return functional.mse_loss(_margins(student), _margins(stored[self.name].float()))


@dataclass(frozen=True)
class GradeCrossEntropy(Loss):
    """Cross-entropy of classes with the probabilities of grades, logits and labels (batch, classes)."""

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        return functional.cross_entropy(output.logits, batch["labels"])


@dataclass(frozen=True)
class OfBoth(Loss):
    """A loss of the two documents of each row, whose labels, (rows, 2, …), are as they are for single documents."""

    loss: Loss

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        return self.loss(output, {**batch, "labels": batch["labels"].flatten(0, 1)})


def _margins(logits: Tensor) -> Tensor:
    first, second = relevance(logits).view(-1, COMPARED).unbind(1)
    return first - second
