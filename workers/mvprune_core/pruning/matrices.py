"""One pruned matrix: its weight, its scores and its mask; and gates, which several weights may share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from mvprune_core.pruning.packed_masks import masked, unpack

ALMOST_ZERO = 1e-30
"""Replaces 0 in W, which would look masked in the result: a model that was pruned before, or a method, may let weights
return."""


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
        weight: W, which the optimizer updates, contiguous; masked entries keep their values. The model's parameter,
            except where that is `written`.
        scores: S, float32, if the method learns scores.
        mask: M: bool, allocated only while masks are updated; float32 gates in [0, 1] for `Gated` methods.
        applied: M as layers compute with it: its bits (see `pack`), or the gates; None: all ones.
        written: the model's parameter where that is W', during evaluation and after training.
        scale: mean |W| before training, one value above 0; at least a tenth of the average over all matrices.
        given: a mask that the run was given, bool.
        buffers: what the method keeps of each weight between steps, by name: float32, of the same shape.
        samples: what the method keeps until the masks are updated, such as sums of sampled gradients.
        inputs_first: whether W is stored as (inputs, outputs), as GPT-2's `Conv1D` does; `nn.Linear` has the outputs
            first.
    """

    name: str
    weight: nn.Parameter
    scores: nn.Parameter | None
    mask: Tensor
    scale: Tensor
    applied: Tensor | None = None
    written: nn.Parameter | None = None
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

    def by_block(self, values: Tensor, size: int) -> Tensor:
        """Values of the matrix's shape by blocks of `size` consecutive inputs of an output, shape (blocks, size)."""
        return (values.t() if self.inputs_first else values).reshape(-1, size)

    def means(self, values: Tensor, size: int) -> Tensor:
        """The mean of the values of each block, shape (blocks,); of blocks of one the values as they are."""
        return values if size == 1 else self.by_block(values, size).mean(1)

    def of_blocks(self, values: Tensor, size: int) -> Tensor:
        """A value of each block for all of its weights: in the matrix's shape."""
        return values if size == 1 else self.in_shape(values.repeat_interleave(size))

    def in_shape(self, blocks: Tensor) -> Tensor:
        """The inverse of `by_block`."""
        outputs = self.weight.shape[1 if self.inputs_first else 0]
        rows = blocks.reshape(outputs, -1)
        return rows.t() if self.inputs_first else rows

    @property
    def masked(self) -> Tensor:
        """W' = M ⊙ W, without gradients."""
        if self.written is not None:
            return self.written.detach()
        return self.weight.detach() if self.applied is None else masked(self.weight, self.applied, self.weight.dtype)

    @property
    def kept(self) -> Tensor:
        """Where W' is not 0, bool."""
        if self.written is None and self.applied is not None and self.applied.dtype == torch.uint8:
            return unpack(self.applied, self.weight.shape)
        return self.masked != 0
