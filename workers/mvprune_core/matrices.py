"""One pruned matrix: its weight, its scores and its mask; and gates, which several weights may share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

ALMOST_ZERO = 1e-30
"""Replaces 0 in W, which would look masked: a model that was pruned before, or a method, may let weights return."""


class Gates(Protocol):
    """Gates of a `Gated` method, one for each score: those of the weights of a matrix, or such that weights share."""

    @property
    def name(self) -> str:
        """Of the matrix, or of what shares the gates."""

    @property
    def scores(self) -> nn.Parameter | None:
        """S, float32."""

    @property
    def mask(self) -> Tensor:
        """The gates, float32 in [0, 1], in the shape of S."""

    @property
    def weights(self) -> int:
        """How many weights the gates open, all together: each one as many."""

    @property
    def penalty_weight(self) -> float:
        """The weight of the mean over these gates in the penalty, which is a weighted mean of such means."""


@dataclass
class Matrix:
    """One pruned weight W of the model, its scores S and its mask M. All have the same shape.

    Attributes:
        name: name of the weight in the model.
        weight: W, which the optimizer updates; masked entries keep their values.
        masked: the model's own parameter, W' = M ⊙ W.
        scores: S, float32, if the method learns scores.
        mask: M: bool, allocated only while masks are updated; float32 gates in [0, 1] for `Gated` methods.
        scale: mean |W| before training, one value above 0; at least a tenth of the average over all matrices.
        given: a mask that the run was given, bool.
        buffers: what the method keeps of each weight between steps, by name: float32, of the same shape.
        samples: what the method keeps of sampled gradients, until the masks are updated.
        inputs_first: whether W is stored as (inputs, outputs), as GPT-2's `Conv1D` does; `nn.Linear` has the outputs
            first.
    """

    name: str
    weight: nn.Parameter
    masked: nn.Parameter
    scores: nn.Parameter | None
    mask: Tensor
    scale: Tensor
    given: Tensor | None = None
    buffers: dict[str, Tensor] = field(default_factory=dict)
    samples: dict[str, Tensor] = field(default_factory=dict)
    inputs_first: bool = False

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.weight.numel()

    @property
    def penalty_weight(self) -> float:
        """See `Gates`."""
        return 1.0

    @property
    def kept(self) -> Tensor:
        """Where W' is not 0, bool."""
        return self.masked.detach() != 0
