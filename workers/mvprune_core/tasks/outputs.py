"""The outputs of a model that a student learns from a teacher: how they are laid out, and how two models' are compared.

The comparison is T² · KL(softmax(t / T) ‖ softmax(s / T)) for teacher logits t, student logits s and temperature T
(Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531, section 2), except for values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class DistilledOutput(ABC):
    """One output of a model's forward pass that a teacher is stored for and a student is compared in.

    Attributes:
        name: of the output, such as logits.
        per_token: an example has one row of logits for each of its tokens; otherwise one row.
        over_classes: the last dimension is the model's classes.
        dtype: in which the teacher's are stored.
        difference: what `loss` is called in notes.
    """

    name: str = "logits"
    per_token: ClassVar[bool]
    over_classes: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float16
    difference: ClassVar[str] = "KL divergence"

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
class Values(DistilledOutput):
    """One value for each example, (batch, 1): the loss is (t − s)². Values may be large: they are stored in fp32."""

    per_token: ClassVar[bool] = False
    dtype: ClassVar[torch.dtype] = torch.float32
    difference: ClassVar[str] = "mean squared difference"

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        return functional.mse_loss(student, teacher)


@dataclass(frozen=True)
class TokenLogits(DistilledOutput):
    """Logits over the classes of each token, (batch, tokens, classes): the loss is a mean over tokens."""

    per_token: ClassVar[bool] = True
    over_classes: ClassVar[bool] = True

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        return (kl_divergence(student, teacher, temperature) * tokens).sum() / tokens.sum()


@dataclass(frozen=True)
class PositionLogits(DistilledOutput):
    """Logits over the tokens of an example, (batch, tokens), as of the start of an answer."""

    per_token: ClassVar[bool] = True

    def loss(self, student: Tensor, teacher: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        lowest = torch.finfo(torch.float32).min
        return kl_divergence(
            student.masked_fill(~tokens, lowest), teacher.masked_fill(~tokens, lowest), temperature
        ).mean()


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
