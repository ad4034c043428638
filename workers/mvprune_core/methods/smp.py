"""Static model pruning: the weights stay as they are, only masks are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune.common.blocks import without_number
from mvprune.spec.kept import kept_count
from mvprune_core.methods.base import Matrix, PruningStep
from mvprune_core.methods.movement import MovementScores
from mvprune_core.methods.penalty import scheduled_penalty
from mvprune_core.pruning.elementwise import SigmoidPenalty, in_parallel
from mvprune_core.pruning.matrices import Gates
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.selectors import select_blocks

Allocation = Literal["kind", "local"]

_PENALTY = 400.0
_ALLOCATION_STEPS = 10  # between two allocations: each waits for the device


@dataclass(frozen=True)
class SMP(MovementScores):
    """Static model pruning (Jiang et al. 2022, https://arxiv.org/abs/2210.06210, section 3).

    The forward pass uses W' = M ⊙ W with M = top-v(S + S₀). The gradients of the scores are those of `Movement`, and
    the loss has the penalty λ(t) · R(S), the mean over matrices of mean σ(S) (equation 6). The weights W, and all other
    parameters of the model's body, stay as they are; the task's head is trained. So the result is the original model
    and a bit mask. The authors freeze the head too; its rows are then the embeddings of words that stand for classes,
    which not every task has.

    Args:
        schedule: the density over the steps; λ(t) grows as the density falls.
        score_learning_rate: learning rate of the scores (AdamW, no weight decay).
        initial_scores: S₀, see `Movement`.
        penalty: λ at the final density; by default the paper's 400 for BERT-base, and the same per weight in models of
            other sizes.
        allocation: "kind": the L matrices of one kind, such as the queries of all layers, share their weights in
            proportion to R(S) of each: v_l = v · L · R(S_l) / Σ R(S) (equation 8); "local": each has the density v.

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "smp"
    takes_blocks: ClassVar[bool] = True
    ranks_weights: ClassVar[bool] = False  # matrices of one kind share their weights
    freezes_weights: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    score_learning_rate: float = 2e-2
    penalty: float | None = None
    allocation: Allocation = "kind"

    @property
    def selection(self) -> Literal["local"]:  # type: ignore[override]
        """Each matrix has a number of weights of its own."""
        return "local"

    def penalty_on_scores(
        self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]
    ) -> SigmoidPenalty | None:
        return scheduled_penalty(gates, self.penalty, _PENALTY, self.schedule, step)

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        density = step.scheduled_density(self.schedule)
        if self.allocation == "local" or density == 1:
            return super().update_masks(matrices, step, control)
        if "shares" not in control or step.number % _ALLOCATION_STEPS == 0:
            control["shares"] = _shares(matrices).cpu()
        size = step.selector.block
        sizes = [matrix.weights // size for matrix in matrices]
        kinds = [without_number(matrix.name) for matrix in matrices]
        counts = _counts(sizes, kinds, control["shares"].tolist(), density)

        def select(index: int, matrix: Matrix) -> None:
            importance = self.importance_of_blocks(matrix, index, size, step)
            select_blocks([matrix], [importance], counts[index], size, step.seed + index)

        in_parallel(select, matrices)
        return density


def _shares(matrices: Sequence[Matrix]) -> Tensor:
    """R(S) of every matrix: its mean σ(S), shape (matrices,)."""
    found = [torch.sigmoid(matrix.scores.detach()).mean() for matrix in matrices if matrix.scores is not None]
    return torch.stack(found)


def _counts(sizes: Sequence[int], kinds: Sequence[str], shares: Sequence[float], density: float) -> list[int]:
    """How many weights each matrix keeps: in proportion to its size and share, and ⌊v · n⌋ in all of a kind.

    A matrix that would keep more than it has keeps all, and the others of its kind share the rest.
    """
    counts = [0] * len(sizes)
    for kind in dict.fromkeys(kinds):
        open_to_more = [index for index, each in enumerate(kinds) if each == kind]
        left = kept_count(sum(sizes[index] for index in open_to_more), density)
        while open_to_more:
            total = sum(shares[index] * sizes[index] for index in open_to_more)
            wanted = {index: left * shares[index] * sizes[index] / total for index in open_to_more}
            full = [index for index in open_to_more if wanted[index] >= sizes[index]]
            if not full:
                break
            for index in full:
                counts[index] = sizes[index]
                left -= sizes[index]
            open_to_more = [index for index in open_to_more if index not in full]
        for index in open_to_more:
            counts[index] = int(wanted[index])
        # What rounding leaves goes to those that it took the most from.
        rest = left - sum(counts[index] for index in open_to_more)
        for index in sorted(open_to_more, key=lambda index: counts[index] - wanted[index])[:rest]:
            counts[index] += 1
    return counts
