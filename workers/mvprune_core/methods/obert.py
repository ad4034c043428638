"""oBERT: second-order pruning, by the loss that removing a weight costs and the best change of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune_core.methods.base import Matrix, PruningStep, Selection, TopV
from mvprune_core.pruning.elementwise import in_parallel
from mvprune_core.pruning.reconstruction import reconstruct
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.selection import Importance

_LARGEST_BLOCK = 50  # of the paper
_MEMORY = 4 << 30  # bytes of the Fisher matrices, at most
_GRADIENTS_AT_ONCE = 16  # they are added together: each addition passes over the Fisher matrices
_BLOCKS_AT_ONCE = 1 << 12  # inverted together, in double precision


@dataclass(frozen=True)
class OBERT(TopV):
    """Optimal BERT Surgeon (Kurtic et al. 2022, https://arxiv.org/abs/2203.07259).

    At each event, the loss around the current weights is taken as ½ δᵀFδ for a change δ. F is the empirical Fisher
    matrix λI + (1/m) Σ g gᵀ of m gradients g (equation 7), without dropout, of the masked model; it is kept only for
    blocks of B consecutive weights of a matrix. The score of a weight is the loss of removing it and changing the
    others as well as possible, w² / (2 [F⁻¹]ᵢᵢ) (equation 4). The weights with the largest scores are kept, and the
    others never return. Then the kept weights change so that each layer computes what it computed before, as nearly as
    they can, for the inputs that it had while the gradients were sampled (`reconstruct`); or, as in the paper, by
    F_KK⁻¹ F_KQ w_Q for the kept weights K of a block, the best change for all the weights Q that the event removes from
    the block together.

    Weights that are kept or dropped together have one score, the loss of removing all of them: for the group G it is
    w_Gᵀ ([F⁻¹]_GG)⁻¹ w_G / 2, which for a single weight is the formula above. Where the blocks are these groups, it is
    ½ (λ |w_G|² + (1/m) Σ (g_Gᵀ w_G)²): the matrix F is not needed.

    Rows and columns of F that belong to weights removed before are left out. As in the paper, the model that is pruned
    is the fine-tuned one, where the run has trained it or has it from another run; else it is the original one.

    Args:
        schedule: the density over the steps, by default 4 events; each time the density changes, F is estimated anew,
            so a schedule in which it changes at every step takes long.
        selection: "local": top-v in each matrix; "global": top-v over all matrices together.
        gradients: m, at most as many as the batches of the run give.
        gradient_batch_size: examples of a gradient.
        damping: λ. In a block where B · 2⁻²³ times the largest entry of F is more, which is what rounding to single
            precision may amount to, λ is that.
        fisher_block_size: B. By default the weights that are kept or dropped together: few gradients say little about
            more; F is then not computed. With the update of the paper 50, or as many as 4 GiB hold for the matrices of
            the model. F takes 4 · B bytes a weight.
        weight_update: how the kept weights change: "layer" by the inputs of the layer, "fisher" by the Fisher matrix.

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "obert"
    needs_dense_steps: ClassVar[bool] = True
    prunes_trained: ClassVar[bool] = True
    takes_blocks: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    ranks_weights: ClassVar[bool] = False  # the update of the kept weights is for single weights

    schedule: Schedule = field(default_factory=lambda: Schedule("events"))
    selection: Selection = "global"
    gradients: int = 256
    gradient_batch_size: int = 16
    damping: float = 1e-7
    fisher_block_size: int | None = None
    weight_update: Literal["layer", "fisher"] = "layer"

    @property
    def samples_inputs(self) -> bool:
        return self.weight_update == "layer"

    def gradient_samples(self, step: PruningStep) -> int:
        return 0 if step.scheduled_density(self.schedule) == step.current_density else self.gradients

    def add_sample(self, matrices: Sequence[Matrix], step: PruningStep) -> None:
        together = step.selector.block
        size = self.blocks_of([matrix.weights for matrix in matrices], together)
        if size == together:
            in_parallel(lambda _, matrix: _add_loss(matrix, together), matrices)
        else:
            in_parallel(lambda _, matrix: _add(matrix, size, together), matrices)

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        if not self.gradient_samples(step):
            return super().update_masks(matrices, step, control)
        together = step.selector.block
        for index, matrix in enumerate(matrices, 1):
            matrix.samples["scores"] = self._scores(matrix, together)
            step.report(index, 2 * len(matrices))
        density = super().update_masks(matrices, step, control)
        for index, matrix in enumerate(matrices, 1):
            if self.weight_update == "layer":
                reconstruct(matrix)
            elif "fisher" in matrix.samples:  # else a block is kept or removed as a whole
                _compensate(matrix, together)
            step.report(len(matrices) + index, 2 * len(matrices))
        return density

    def importance_of_blocks(self, matrix: Matrix, index: int, size: int, step: PruningStep) -> Importance:
        return matrix.samples["scores"]

    def notes(self, sizes: Sequence[int], examples: int, block: int) -> Sequence[str]:
        size, notes = self.blocks_of(sizes, block), []
        if size != block:
            needed = sum(sizes) * size * 4 / (1 << 30)
            smaller = size < _LARGEST_BLOCK // block * block and self.fisher_block_size is None
            why = f"; larger ones, the default, would take more than {_MEMORY >> 30} GiB" if smaller else ""
            notes = [f"obert estimates the Fisher matrix in blocks of {size} weights, which take {needed:.1f} GiB{why}"]
        if (most := -(-examples // self.gradient_batch_size)) < self.gradients:
            notes.append(
                f"each event of obert samples {most} gradients, not {self.gradients}, because the run reads only "
                f"{examples:,} examples"
            )
        return notes

    def blocks_of(self, sizes: Sequence[int], together: int) -> int:
        """B for matrices of these `sizes` (weights each): a multiple of how many weights are dropped together."""
        if self.fisher_block_size:
            return self.fisher_block_size
        if self.weight_update == "layer":
            return together
        largest = _LARGEST_BLOCK // together
        return together * max(1, min(largest, _MEMORY // (4 * together * sum(sizes))))

    def _scores(self, matrix: Matrix, together: int) -> Tensor:
        """The loss of removing each group of weights that are dropped together; −∞ for those removed before.

        Returns:
            The shape of the matrix for single weights, else (groups,).
        """
        weight, kept = (_in_order(matrix, values, together) for values in (matrix.weight.detach(), matrix.kept))
        if "losses" in matrix.samples:
            mean = matrix.samples["losses"] / matrix.samples["count"].to(weight.device)
            scores = (mean + self.damping * _by_group(weight.square(), together)) / 2
        else:
            fisher = self._finish_fisher(matrix)
            parts = torch.split(fisher, _BLOCKS_AT_ONCE)
            weights = torch.split(weight, _BLOCKS_AT_ONCE * fisher.shape[-1])
            scores = torch.cat([_losses(*part, together) for part in zip(parts, weights, strict=True)])
        scores.masked_fill_(~kept.view(-1, together)[:, 0], -torch.inf)
        return scores.view(matrix.weight.shape) if together == 1 else scores

    def _finish_fisher(self, matrix: Matrix) -> Tensor:
        """F = λI + (1/m) Σ g gᵀ, shape (blocks, B, B)."""
        _add_waiting(matrix)
        fisher = matrix.samples["fisher"]
        fisher.div_(matrix.samples["count"].to(fisher.device))
        diagonal = fisher.diagonal(dim1=1, dim2=2)
        rounding = diagonal.amax(1, keepdim=True) * (fisher.shape[-1] * torch.finfo(fisher.dtype).eps)
        diagonal.add_(rounding.clamp_min(self.damping))
        return fisher

    def _keeps_masks(self, step: PruningStep) -> bool:
        return True


def _add_loss(matrix: Matrix, together: int) -> None:
    """Adds (g_Gᵀ w_G)² for each group G: twice what removing it costs by one gradient g."""
    grad, samples = matrix.weight.grad, matrix.samples
    if grad is None:
        return
    losses = _by_group(_in_order(matrix, grad * matrix.weight.detach(), together), together).square()
    samples["losses"] = samples["losses"].add_(losses) if "losses" in samples else losses
    samples["count"] = samples.get("count", torch.zeros((), dtype=torch.int64)) + 1


def _add(matrix: Matrix, block_size: int, together: int) -> None:
    """Adds the gradient of a matrix to those that wait, in blocks, without the weights that were removed before."""
    grad, samples = matrix.weight.grad, matrix.samples
    if grad is None:
        return
    if "fisher" not in samples:
        blocks = -(-grad.numel() // block_size)
        samples["fisher"] = torch.zeros((blocks, block_size, block_size), device=grad.device)
        samples["waiting"] = torch.zeros((_GRADIENTS_AT_ONCE, blocks * block_size), device=grad.device)
        samples["count"] = torch.zeros((), dtype=torch.int64)
    slot = int(samples["count"]) % _GRADIENTS_AT_ONCE
    values = _in_order(matrix, grad, together), _in_order(matrix, matrix.kept, together)
    torch.mul(*values, out=samples["waiting"][slot, : grad.numel()])
    samples["count"] += 1
    if slot == _GRADIENTS_AT_ONCE - 1:
        _add_waiting(matrix)


def _add_waiting(matrix: Matrix) -> None:
    """Adds the waiting gradients to the sum of g gᵀ."""
    fisher, waiting = matrix.samples["fisher"], matrix.samples["waiting"]
    gradients = waiting.view(len(waiting), len(fisher), -1).transpose(0, 1)  # (blocks, gradients, B)
    fisher.baddbmm_(gradients.transpose(1, 2), gradients)
    waiting.zero_()


def _losses(fisher: Tensor, weight: Tensor, together: int) -> Tensor:
    """w_Gᵀ ([F⁻¹]_GG)⁻¹ w_G / 2 for each group G that is smaller than a block, shape (groups,).

    For a single weight, it is w² / (2 [F⁻¹]ᵢᵢ).

    Args:
        fisher: shape (blocks, B, B).
        weight: the weights of the blocks, flat; those that the last block lacks are missing.
        together: weights of a group.
    """
    if together == 1:
        diagonal = _inverse(fisher).diagonal(dim1=1, dim2=2).float().reshape(-1)[: len(weight)]
        return weight.square() / (2 * diagonal)
    groups = weight.double().view(-1, together, 1)
    parts = _inverse(fisher).unfold(1, together, together).unfold(2, together, together)
    of_groups = parts.diagonal(dim1=1, dim2=2).permute(0, 3, 1, 2).reshape(-1, together, together)
    products = torch.linalg.solve(of_groups[: len(groups)], groups)
    losses: Tensor = (groups * products).sum((1, 2)) / 2
    return losses.float()


def _inverse(fisher: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(fisher.double()))


def _by_group(values: Tensor, together: int) -> Tensor:
    """The sums of the groups' values, which are neighbours, shape (groups,)."""
    return values.view(-1, together).sum(1) if together > 1 else values


def _in_order(matrix: Matrix, values: Tensor, together: int) -> Tensor:
    """Values of the matrix's shape, flat, in which the weights of a group are neighbours."""
    return values.reshape(-1) if together == 1 else matrix.by_block(values, together).reshape(-1)


def _compensate(matrix: Matrix, together: int) -> None:
    """Changes the weights that are kept, in the blocks that lose others, by F_KK⁻¹ F_KQ w_Q."""
    fisher, weight = matrix.samples["fisher"], matrix.weight.detach()
    count, size = weight.numel(), fisher.shape[-1]
    padded = weight.new_zeros(len(fisher) * size)

    def in_blocks(values: Tensor) -> Tensor:
        copy = torch.zeros_like(padded, dtype=values.dtype)
        copy[:count] = _in_order(matrix, values, together)
        return copy.view(-1, size)

    keep, weights = in_blocks(matrix.mask), in_blocks(weight)
    removed = in_blocks(matrix.kept) & ~keep
    changed = (removed.any(1) & keep.any(1)).nonzero().squeeze(1)
    for some in torch.split(changed, _BLOCKS_AT_ONCE):
        kept, curvature = keep[some].double(), fisher[some].double()
        coupling = curvature @ (weights[some] * removed[some]).double().unsqueeze(-1)
        of_kept = curvature * kept.unsqueeze(1) * kept.unsqueeze(2) + torch.diag_embed(1 - kept)
        change = torch.linalg.solve(of_kept, coupling.squeeze(-1) * kept)
        weights[some] += change.float()
    flat = weights.view(-1)[:count]
    weight.copy_(flat.view(weight.shape) if together == 1 else matrix.in_shape(flat))
