"""Losses of a model's outputs on labels.

They are those of transformers' models, bit for bit, but the core computes them: a model does not get the labels.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from mvprune_core.tasks.batching import IGNORED

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Loss(ABC):
    """A mean over the examples of a batch, or over its labelled tokens.

    Attributes:
        labels: the tensors of a batch that are no inputs of the model.
    """

    labels: ClassVar[tuple[str, ...]] = ("labels",)

    @abstractmethod
    def __call__(self, output: Any, batch: Batch) -> Tensor:
        """The loss, a scalar.

        Args:
            output: the model's output for the inputs of the batch, such as its logits.
            batch: the whole batch, with labels.
        """


@dataclass(frozen=True)
class LossOfVectors(Loss):
    """A loss that compares the vectors of all texts of a batch with each other. It is that of the whole batch, also
    where the model reads the batch in parts (see `BatchGradients`).

    Attributes:
        name: of the model's output, (texts, width).
    """

    name: str

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        return self.of_vectors(output[self.name].float(), batch)

    @abstractmethod
    def of_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        """The loss, a scalar.

        Args:
            vectors: of all texts of the batch, float32, shape (texts, width).
            batch: the whole batch, with labels.
        """


class OwnLoss(Loss):
    """The model's own loss: the model gets the labels, and transformers chooses by `problem_type`."""

    labels: ClassVar[tuple[str, ...]] = ()

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        loss: Tensor = output.loss
        return loss


class CrossEntropy(Loss):
    """Of one class for each example, logits (batch, classes), or for each token, (batch, tokens, classes)."""

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        return functional.cross_entropy(output.logits.flatten(0, -2), batch["labels"].flatten())


@dataclass(frozen=True)
class WeightedCrossEntropy(Loss):
    """Of one class for each example, logits (batch, classes), times the weight of its class.

    The mean is over the examples, not over their weights as in `torch.nn.CrossEntropyLoss`: so the gradients of the
    parts of a batch add up to those of the whole batch.

    Attributes:
        weights: of each class, in the model's order; their mean over the training examples is 1.
    """

    weights: tuple[float, ...]

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        losses = functional.cross_entropy(output.logits, batch["labels"], reduction="none")
        return (losses * losses.new_tensor(self.weights)[batch["labels"]]).mean()


class NextTokenCrossEntropy(Loss):
    """Of the next token at each token, logits (batch, tokens, vocabulary): the logits at a token are compared with the
    label of the one after it. So the first label of a row is never read; it must be −100, for labels are counted."""

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        following = functional.pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
        return functional.cross_entropy(output.logits.float().flatten(0, -2), following.flatten())


class SpanCrossEntropy(Loss):
    """Of the first and the last token of an answer, logits (batch, tokens) each; positions beyond the tokens are left
    out."""

    labels: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        beyond = output.start_logits.shape[1]
        start, end = (
            functional.cross_entropy(logits, batch[name].clamp(0, beyond), ignore_index=beyond)
            for logits, name in zip((output.start_logits, output.end_logits), self.labels, strict=True)
        )
        return (start + end) / 2


class SquaredError(Loss):
    """Of one value for each example, logits (batch, 1), labels (batch,)."""

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        return functional.mse_loss(output.logits.squeeze(), batch["labels"].squeeze())


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Of labels that do not exclude each other, logits and labels (batch, labels).

    Attributes:
        weights: of the examples that have a label, for each label in the model's order, beside 1 for the others; (): 1.
    """

    weights: tuple[float, ...] = ()

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        weights = output.logits.new_tensor(self.weights) if self.weights else None
        return functional.binary_cross_entropy_with_logits(output.logits, batch["labels"], pos_weight=weights)


@dataclass(frozen=True)
class RandomDirection(Loss):
    """The inner product of each text's vector with a random direction, for texts without labels. A text in the same
    batch has the same direction in every pass.

    With the Jacobian J of a vector with respect to a weight matrix and a direction ε of independent standard normal
    numbers, the gradient is Jᵀε, and the mean of its outer products is JᵀJ: the Gauss-Newton matrix of half the squared
    distance of vectors, and the Fisher information of a normal distribution around them (Martens 2020,
    https://arxiv.org/abs/1412.1193, section 9.2). So methods that sample gradients learn which weights move the
    vectors. Training has the vectors of a teacher in place of it.

    Attributes:
        name: of the model's output, (texts, width).
    """

    name: str
    labels: ClassVar[tuple[str, ...]] = ()

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        vectors: Tensor = output[self.name].float()
        # Drawn by the tokens: the same for the same texts, whatever else is drawn, and another one for others.
        digest = hashlib.blake2b(batch["input_ids"].cpu().numpy().tobytes(), digest_size=7).digest()
        draw = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
        return (vectors * torch.randn(vectors.shape, generator=draw).to(vectors.device)).sum(-1).mean()
