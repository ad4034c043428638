"""The outputs of a model that a student learns from a teacher: how they are laid out, and how two models' are compared.

The comparison is T² · KL(softmax(t / T) ‖ softmax(s / T)) for teacher logits t, student logits s and temperature T
(Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531, section 2), except for values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

KEPT = 64
"""Classes of a vocabulary of which a teacher's probability is stored: 386 bytes a token, 100 kB with all of GPT-2's."""
CLASSES = ".classes"
"""After the name of an output: which classes these are."""
_LEAST = 1e-6  # of a probability: a sum of others in fp32 is no finer


@dataclass(frozen=True)
class DistilledOutput(ABC):
    """One output of a model's forward pass that a teacher is stored for and a student is compared in.

    Attributes:
        name: of the output, such as logits.
        per_token: an example has one row of logits for each of its tokens; otherwise one row.
        over_classes: the last dimension is the model's classes.
        dtype: in which the teacher's are stored.
        difference: what `loss` is called in notes.
        bytes_per_token: what is stored of a token, where that is not all of its logits; 0: they are stored whole.
    """

    name: str = "logits"
    per_token: ClassVar[bool]
    over_classes: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float16
    difference: ClassVar[str] = "KL divergence"
    bytes_per_token: ClassVar[int] = 0

    def stored(self, logits: Tensor) -> dict[str, Tensor]:
        """What is stored of a teacher's logits: by name, of which `name` is one, tensors with the same first
        dimensions."""
        return {self.name: logits.to(self.dtype)}

    def compared(self, student: Tensor, stored: Mapping[str, Tensor], tokens: Tensor, temperature: float) -> Tensor:
        """The `loss` of logits and what `stored` made of a teacher's, by name."""
        return self.loss(student, stored[self.name].float(), tokens, temperature)

    @abstractmethod
    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        """The mean over a batch.

        Args:
            student: float32, shape (batch, …), or (batch, tokens, …) where it is `per_token`.
            teacher: the same shape.
            tokens: which tokens are no padding, shape (batch, tokens); read only where it is `per_token`.
            temperature: T.
        """


@dataclass(frozen=True)
class ClassLogits(DistilledOutput):
    """Logits over the classes of an example, (batch, classes)."""

    per_token: ClassVar[bool] = False
    over_classes: ClassVar[bool] = True

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        return kl_divergence(student, teacher, temperature).mean()


@dataclass(frozen=True)
class LabelLogits(DistilledOutput):
    """Logits of labels that do not exclude each other, (batch, labels).

    The loss is T² · KL of the two probabilities of each label, σ(t / T) and 1 − σ(t / T), a mean over the labels.
    """

    per_token: ClassVar[bool] = False
    over_classes: ClassVar[bool] = True

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        one, other = (torch.stack([logits, torch.zeros_like(logits)], dim=-1) for logits in (student, teacher))
        return kl_divergence(one, other, temperature).mean()


@dataclass(frozen=True)
class Values(DistilledOutput):
    """One value for each example, (batch, 1): the loss is (t − s)². Values may be large: they are stored in fp32."""

    per_token: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float32
    difference: ClassVar[str] = "mean squared difference"

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        return functional.mse_loss(student, teacher)


@dataclass(frozen=True)
class Vectors(DistilledOutput):
    """The vector of each text, (batch, width): the loss is ‖t − s‖² / ‖t‖², which is 2 · (1 − cos(t, s)) for vectors of
    length 1. A student of it stays in the teacher's space, lengths included."""

    name: str = "sentence_embedding"
    per_token: ClassVar[bool] = False
    difference: ClassVar[str] = "relative squared distance"

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        errors = (student - teacher).square().sum(-1) / teacher.square().sum(-1).clamp_min(_LEAST)
        return errors.mean()


@dataclass(frozen=True)
class TokenLogits(DistilledOutput):
    """Logits over the classes of each token, (batch, tokens, classes): the loss is a mean over tokens."""

    per_token: ClassVar[bool] = True
    over_classes: ClassVar[bool] = True

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        return (kl_divergence(student, teacher, temperature) * tokens).sum() / tokens.sum()


@dataclass(frozen=True)
class VocabularyLogits(TokenLogits):
    """Logits over a vocabulary at each token, (batch, tokens, vocabulary), which are too many to be stored.

    Stored are the logarithms of k + 1 probabilities of the teacher p = softmax(t): those of its k most probable classes
    C, and of all others together, p₀ = 1 − Σ_{i∈C} pᵢ. The student's q = softmax(s) has the same buckets, q₀ too, and
    the loss is

        T² · KL(p̃ ‖ q̃),   p̃ᵢ = pᵢ^{1/T} / Σⱼ pⱼ^{1/T},   q̃ᵢ in the same way,   i, j ∈ C ∪ {0},

    a mean over tokens. As pᵢ is proportional to exp(tᵢ), pᵢ^{1/T} is to exp(tᵢ / T): where each bucket is one class,
    p̃ is softmax(t / T), and the loss that of `TokenLogits`. It is 0 only where the student has the teacher's
    probabilities of all buckets; how it shares p₀ among its classes is left to the loss on labels.
    """

    over_classes: ClassVar[bool] = False
    bytes_per_token: ClassVar[int] = (KEPT + 1) * 2 + KEPT * 4

    def stored(self, logits: Tensor) -> dict[str, Tensor]:
        classes = logits.topk(min(KEPT, logits.shape[-1] - 1), dim=-1).indices
        return {
            self.name: _log_buckets(logits.float(), classes).to(self.dtype),
            self.name + CLASSES: classes.to(torch.int32),
        }

    def compared(self, student: Tensor, stored: Mapping[str, Tensor], tokens: Tensor, temperature: float) -> Tensor:
        buckets = _log_buckets(student, stored[self.name + CLASSES].long())
        return self.loss(buckets, stored[self.name].float(), tokens, temperature)


@dataclass(frozen=True)
class PositionLogits(DistilledOutput):
    """Logits over the tokens of an example, (batch, tokens), as of the start of an answer."""

    per_token: ClassVar[bool] = True

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        lowest = torch.finfo(torch.float32).min
        return kl_divergence(
            student.masked_fill(~tokens, lowest), teacher.masked_fill(~tokens, lowest), temperature
        ).mean()


def _log_buckets(logits: Tensor, classes: Tensor) -> Tensor:
    """Logarithms of the probabilities of some classes, (…, k), and of all others together, (…, k + 1)."""
    chosen = logits.gather(-1, classes) - logits.logsumexp(-1, keepdim=True)
    others = (1 - chosen.exp().sum(-1, keepdim=True)).clamp_min(_LEAST)
    return torch.cat([chosen, others.log()], dim=-1)


def kl_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² · KL(softmax(teacher / T) ‖ softmax(student / T)) over the last dimension."""
    divergence = functional.kl_div(
        functional.log_softmax(student / temperature, dim=-1),
        functional.log_softmax(teacher / temperature, dim=-1),
        reduction="none",
        log_target=True,
    )
    summed: Tensor = divergence.sum(-1)
    return summed * temperature**2
