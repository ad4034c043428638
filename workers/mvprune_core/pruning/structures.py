"""Selection of whole attention heads and feed-forward units, which are removed at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mvprune.artifact.structures import Structures
from mvprune_core.pruning.matrices import Gates, Matrix
from mvprune_core.pruning.selection import materialize
from mvprune_core.pruning.selectors import MARGIN, OPEN, Ranking, Selector, SharedGates


class WholeStructures(Selector):
    """The most important heads and units stay, of all blocks together, at least one of each in every block.

    The importance of a head or a unit is the mean over its weights. With movement it is the mean of the scores, which
    gradient descent moves by −W · ∂L/∂W' (see `Movement`). Their sum is, to first order, what the loss rises by if the
    head or unit is removed, as in Michel, Levy and Neubig 2019 (https://arxiv.org/abs/1905.10650, section 4.1). They
    take the absolute value for each example; here all steps are added with their signs. The mean in place of the sum
    makes heads and units comparable, which differ in size.

    The density is the nearest that whole heads and units can have. Of the combinations with that density, the one is
    taken whose number of heads is nearest to that among the most important heads and units.

    Args:
        model: the model, before anything is removed.
        structures: its heads and units that may be removed, each kind of one size.
    """

    def __init__(self, model: nn.Module, structures: Sequence[Structures]) -> None:
        self._heads = Group(model, [each for each in structures if each.kind == "heads"])
        self._units = Group(model, [each for each in structures if each.kind == "units"])
        self._total = self._heads.weights + self._units.weights

    def nearest(self, density: float) -> float:
        wanted = density * self._total
        found = self._weights(wanted)
        return float(found[np.abs(found - wanted).argmin()]) / self._total

    def most_structures(self, density: float) -> int:
        weights = round(density * self._total)
        heads = self._numbers_of_heads(weights, torch.device("cpu"))
        units = (weights - heads * self._heads.size) // max(self._units.size, 1)
        return int((self._heads.most_structures(heads) + units).max())

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        layers = {matrix.name.removesuffix(".weight"): (matrix, index) for index, matrix in enumerate(matrices)}
        means = torch.cat([group.scores(layers, ranking) for group in (self._heads, self._units) if group.count])
        heads, units, places = self._choose(means, density, ranking.seed)
        self._heads.write(places[: self._heads.count], heads, layers)
        self._units.write(places[self._heads.count :], units, layers)

    def shared_gates(self, matrices: Sequence[Matrix]) -> list[SharedGates]:
        layers = {matrix.name.removesuffix(".weight"): matrix for matrix in matrices}
        return [StructureGates(each, layers) for group in (self._heads, self._units) for each in group.structures]

    def separate(self, gates: Sequence[Gates], density: float, level: float, seed: int) -> Tensor:
        """See `Selector.separate`. The scores are changed: heads and units differ in size, and each block keeps some,
        so no level separates them."""
        scores = [some.scores.detach() for some in gates if some.scores is not None]
        heads, units, places = self._choose(torch.cat(scores), density, seed)
        of_heads, of_units = places[: self._heads.count], places[self._heads.count :]
        kept = torch.cat([_first(of_heads, heads), _first(of_units, units)])
        for score, stays in zip(scores, torch.split(kept, [len(score) for score in scores]), strict=True):
            score.copy_(torch.where(stays, score.clamp_min(level + OPEN), score.clamp_max(level - MARGIN)))
        return torch.zeros_like(scores[0][0])

    def _choose(self, scores: Tensor, density: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """How many heads and how many units stay, and the places of all in the order in which they are kept."""
        order, places = best_first(scores, self._blocks(), seed)
        sizes = torch.where(order < self._heads.count, self._heads.size, self._units.size)
        weights = round(density * self._total)
        # The most important ones together have about that many weights; the last counts if its half fits.
        heads = ((2 * sizes.cumsum(0) - sizes <= 2 * weights) & (order < self._heads.count)).sum()
        possible = self._numbers_of_heads(weights, order.device)
        heads = possible.take((possible - heads).abs().argmin())
        return heads, (weights - heads * self._heads.size) // max(self._units.size, 1), places

    def _weights(self, wanted: float) -> NDArray[np.int64]:
        """For each number of heads: their weights, and of as many units as bring them nearest to the wanted weights."""
        units, heads = self._units, self._heads.numbers * self._heads.size
        number = np.rint((wanted - heads) / max(units.size, 1)).clip(units.numbers[0], units.count)
        return heads + number.astype(np.int64) * units.size

    def _numbers_of_heads(self, weights: int, device: torch.device) -> Tensor:
        """The numbers of heads that some number of units adds up to exactly these weights: equally far apart."""
        found = self._heads.numbers[self._weights(weights) == weights].tolist()
        step = found[1] - found[0] if len(found) > 1 else 1
        return torch.arange(found[0], found[-1] + 1, step, device=device)

    def _blocks(self) -> list[slice]:
        """The heads, or the units, of each block, among the heads and then the units of all."""
        found, start = [], 0
        for count in (*self._heads.counts, *self._units.counts):
            found.append(slice(start, start + count))
            start += count
        return found


class Group:
    """All heads, or all units, of the blocks.

    Attributes:
        structures: those of each block.
        counts: how many each block has.
        count: how many all have.
        size: weights of each.
        weights: of all.
        numbers: how many may stay.
    """

    def __init__(self, model: nn.Module, structures: Sequence[Structures]) -> None:
        self.structures = structures
        self.counts = [each.count(model) for each in structures]
        self.count = sum(self.counts)
        self.weights = sum(
            model.get_parameter(f"{layer}.weight").numel() for each in structures for layer in each.layers
        )
        self.size = self.weights // max(self.count, 1)
        self.numbers = np.arange(len(structures), self.count + 1)

    def most_structures(self, numbers: Tensor) -> Tensor:
        """How many heads, or units, have weights at most, where `numbers` of what is selected stay."""
        return numbers

    def scores(self, layers: Mapping[str, tuple[Matrix, int]], ranking: Ranking) -> Tensor:
        """The importance of each, block by block."""

        def sums(layer: str, each: Structures, axis: int) -> Tensor:
            """The importance of the rows (0) or columns (1) of each."""
            values = materialize(ranking.importance(*layers[layer]))
            return values.sum(1 - axis).view(-1, each.size).sum(1)

        found = [
            sum((sums(layer, each, 0) for layer in each.inputs), sums(each.output, each, 1)) for each in self.structures
        ]
        return ranking.of_groups(torch.cat(found), self.size)

    def write(self, places: Tensor, number: Tensor, layers: Mapping[str, tuple[Matrix, int]]) -> None:
        """Writes the masks of the `number` structures with the first places."""
        matrices = {layer: matrix for layer, (matrix, _) in layers.items()}
        for each, some in zip(self.structures, torch.split(_first(places, number), self.counts), strict=True):
            write_masks(each, some, matrices)


class StructureGates(SharedGates):
    """The gates of the heads, or the units, of a block.

    A gate multiplies the columns of the output matrix, and so what the head or unit computes. The rows of the other
    matrices are masked where it is closed, which changes no output.

    Args:
        each: the heads or units.
        layers: the matrices of the model, by the name of their layer.
    """

    def __init__(self, each: Structures, layers: Mapping[str, Matrix]) -> None:
        self._structures, self._layers = each, {name: layers[name] for name in each.layers}
        weight = layers[each.output].weight
        mask = torch.ones(weight.shape[1] // each.size, device=weight.device)
        weights = sum(matrix.weights for matrix in self._layers.values())
        super().__init__(f"{each.block}.{each.kind}", mask, weights)

    def write_masks(self) -> None:
        write_masks(self._structures, self.mask, self._layers)

    def collect_gradient(self, of_weights: Mapping[str, Tensor]) -> None:
        if self.scores is None:
            raise TypeError("gates have scores")
        if (found := of_weights.get(self._layers[self._structures.output].name)) is not None:
            self.scores.grad = found.sum(0).view(-1, self._structures.size).sum(1)


def _first(places: Tensor, number: Tensor) -> Tensor:
    """Which ones have the `number` first places."""
    return places.argsort().argsort() < number


def write_masks(each: Structures, values: Tensor, layers: Mapping[str, Matrix]) -> None:
    """Writes a value of each structure, bool or in [0, 1], into its columns; into its rows whether it is above 0."""
    columns = values.repeat_interleave(each.size)
    for name in each.inputs:
        mask = layers[name].mask
        mask.copy_((columns > 0).unsqueeze(1).expand_as(mask))
    mask = layers[each.output].mask
    mask.copy_(columns.unsqueeze(0).expand_as(mask))


def in_words(left: Mapping[Structures, int], before: Mapping[Structures, int]) -> str:
    """How many heads and units are left, as a sentence."""
    parts = []
    for kind in ("heads", "units"):
        counts = {each: count for each, count in left.items() if each.kind == kind}
        if counts:
            blocks = ", ".join(str(count) for count in counts.values())
            all_before = sum(before[each] for each in counts)
            parts.append(f"{sum(counts.values()):,} of {all_before:,} {kind} are left, by block: {blocks}")
    return "; ".join(parts)


def best_first(scores: Tensor, blocks: Sequence[slice], seed: int) -> tuple[Tensor, Tensor]:
    """The order from the best to the worst, and the place of each in it.

    The best of each block come before all others. Equal scores are ordered at random.
    """
    device = scores.device
    shuffled = torch.randperm(len(scores), generator=torch.Generator(device).manual_seed(seed), device=device)
    order = shuffled[scores[shuffled].argsort(descending=True, stable=True)]
    places = order.argsort()
    best = torch.stack([block.start + places[block].argmin() for block in blocks])
    places[best] -= len(places)
    order = places.argsort()
    return order, order.argsort()
