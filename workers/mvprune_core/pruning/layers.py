"""Selection of whole layers of the encoder, which are bypassed in training and removed at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mvprune.artifact.structures import Structures, remove_empty, remove_empty_layers
from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.selection import materialize
from mvprune_core.pruning.selectors import Ranking, Selector
from mvprune_core.pruning.structures import best_first, in_words


class WholeLayers(Selector):
    """The layers whose weights have the highest mean importance stay, at least one.

    The method's scores choose the layers while it trains, as for heads and units (see `WholeStructures`), and a pruned
    layer is bypassed from then on.

    Args:
        layers: those that may be removed, all of one size.
    """

    def __init__(self, layers: Sequence[Structures]) -> None:
        self._layers = layers

    def nearest(self, density: float) -> float:
        return self._number(density) / len(self._layers)

    def most_structures(self, density: float) -> int:
        return self._number(density)

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        found = {matrix.name.removesuffix(".weight"): (matrix, index) for index, matrix in enumerate(matrices)}
        size = sum(matrix.weight.numel() for matrix in matrices) // len(self._layers)
        sums = [
            torch.stack([materialize(ranking.importance(*found[name])).sum() for name in each.layers]).sum()
            for each in self._layers
        ]
        means = ranking.of_groups(torch.stack(sums), size)
        _, places = best_first(means, [slice(0, len(self._layers))], ranking.seed)
        kept = places.argsort().argsort() < self._number(density)
        for each, stays in zip(self._layers, kept, strict=True):
            for name in each.layers:
                mask = found[name][0].mask
                mask.copy_(stays.expand_as(mask))

    def _number(self, density: float) -> int:
        return max(1, round(density * len(self._layers)))


class EveryOther(WholeLayers):
    """Every other layer stays, or every third, as evenly as the density lets them be.

    After training with LayerDrop (see `layers_dropped`), Fan, Grave and Joulin 2020 (https://arxiv.org/abs/1909.11556,
    section 3.2, "Every Other") leave out the layers at the depths d ≡ 0 (mod ⌊1/p⌋) to prune a fraction p of them. That
    is another fraction than p where 1/p is not whole. Here r of n layers are to be left out: those at the depths ⌊i · n
    / r⌋, i = 1 … r, which are the same ones where r divides n. While the density falls, the deepest of them go first.

    Args:
        layers: those that may be removed, in the order of their depth.
        density: the density at the end.
    """

    def __init__(self, layers: Sequence[Structures], density: float) -> None:
        super().__init__(layers)
        self._left_out = every_other(len(layers), len(layers) - self._number(density))

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        masks = {matrix.name.removesuffix(".weight"): matrix.mask for matrix in matrices}
        stay = self._number(density) - (len(self._layers) - len(self._left_out))  # of those that go in the end
        for number, each in enumerate(self._layers):
            for name in each.layers:
                masks[name].fill_(number not in self._left_out[stay:])


def every_other(layers: int, left_out: int) -> list[int]:
    """The layers that `EveryOther` leaves out of so many: their numbers from 0, ascending."""
    return [index * layers // left_out - 1 for index in range(1, left_out + 1)]


@contextmanager
def empty_bypassed(model: nn.Module, structures: Sequence[Structures]) -> Iterator[None]:
    """A context in which every layer whose output matrix is zero returns its input.

    In a block that normalizes after each sum, zero matrices are not enough: biases and norms stay. The choice is made
    on the device, in every forward pass, so that nothing waits for it. A bypassed layer has gradients of zero. The
    hidden states that transformers returns are those after the bypass.

    Args:
        model: the masked model.
        structures: its structures; only layers are bypassed.
    """
    handles = [
        # First, because transformers records hidden states in such hooks too.
        model.get_submodule(each.block).register_forward_hook(
            partial(_bypass, model.get_submodule(each.output)), prepend=True
        )
        for each in structures
        if each.kind == "layers"
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def remove_structures(
    model: nn.Module, structures: Sequence[Structures], pruned: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """Removes, in place, the structures without weights.

    Args:
        model: the masked model.
        structures: heads and units, or layers.
        pruned: names of the pruned weights.

    Returns:
        The names of the pruned weights that the smaller model has, and what was removed, as a sentence.
    """
    if structures[0].kind != "layers":
        counts = {each: each.count(model) for each in structures}
        return tuple(pruned), in_words(remove_empty(model, structures), counts)
    left = remove_empty_layers(model, structures)
    removed = ", ".join(each.block for each in structures if each.block not in left)
    names = (new + name.removeprefix(old) for name in pruned for old, new in left.items() if name.startswith(f"{old}."))
    kept = sum(each.block in left for each in structures)
    return tuple(names), f"{kept:,} of {len(structures):,} layers are left; removed: {removed or 'none'}"


def _bypass(output: Any, _layer: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> Tensor:
    return torch.where(output.weight.detach().any(), result, inputs[0])
