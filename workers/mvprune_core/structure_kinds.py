"""What the words of `structure` stand for: which structures may be removed, and what selects among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact.structures import Structures, find_layers, find_structures, shares_layers
from mvprune.spec.structures import BLOCK_SIZE, Part, problem_with_selection, problem_with_structure
from mvprune.spec.structures import KINDS as REMOVED
from mvprune_core.blocks import BlocksAndUnits, check_block_size
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.layers import WholeLayers
from mvprune_core.selectors import Selector
from mvprune_core.sparse_structures import SparseStructures
from mvprune_core.structures import WholeStructures

Structure = Literal["heads", "units", "heads_and_units", "blocks_and_units", "layers"]


@dataclass(frozen=True)
class StructureOptions:
    """The options of a run that prunes structures.

    Attributes:
        structure: what is pruned.
        density: fraction of the weights whose structures stay, if weights are pruned inside these.
        block_size: rows and columns of a block, if blocks are pruned.
        fill: whether heads and units with some blocks have all their weights again once the density is reached.
    """

    structure: Structure
    density: float | None = None
    block_size: int | None = None
    fill: bool = False

    @property
    def kind(self) -> StructureKind:
        """What the structure stands for."""
        return KINDS[self.structure]


@dataclass(frozen=True)
class StructureKind:
    """What a word of `structure` stands for.

    Attributes:
        select: makes the selector of a model's structures.
        find: finds all structures of a model.
        block_size: rows and columns of a block by default, if blocks are pruned.
    """

    select: Callable[[nn.Module, Sequence[Structures], StructureOptions], Selector]
    find: Callable[[nn.Module], Iterable[Structures]] = find_structures
    block_size: int | None = None


def _heads_and_units(model: nn.Module, structures: Sequence[Structures], _: StructureOptions) -> Selector:
    return WholeStructures(model, structures)


def _blocks_and_units(model: nn.Module, structures: Sequence[Structures], options: StructureOptions) -> Selector:
    if options.block_size is None:
        raise TypeError("blocks have a size")
    check_block_size(options.block_size, structures)
    return BlocksAndUnits(model, structures, options.block_size, fills=options.fill)


def _layers(_: nn.Module, structures: Sequence[Structures], __: StructureOptions) -> Selector:
    return WholeLayers(structures)


KINDS: Mapping[Structure, StructureKind] = MappingProxyType(
    {
        "heads": StructureKind(_heads_and_units),
        "units": StructureKind(_heads_and_units),
        "heads_and_units": StructureKind(_heads_and_units),
        "blocks_and_units": StructureKind(_blocks_and_units, block_size=BLOCK_SIZE),
        "layers": StructureKind(_layers, find_layers),
    }
)


def new_selector(
    model: nn.Module, structures: Sequence[Structures], options: StructureOptions, density: float | None
) -> Selector:
    """What selects among the structures, and among the weights inside them if these are to be sparse.

    Args:
        model: the model, before anything is removed.
        structures: those that may be removed.
        options: what is pruned.
        density: fraction of the weights to keep.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, blocks do not fit the heads.
    """
    whole = options.kind.select(model, structures, options)
    if options.density is None or density is None:
        return whole
    return SparseStructures(whole, structures, density, options.density)


def pruned_structures(
    model: nn.Module, layers: Mapping[str, nn.Linear | Conv1D], structure: Structure
) -> list[Structures]:
    """The heads and units, or the encoder's layers, that may be removed: those whose matrices are among `layers`.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, the model has no structures of a known shape, its layers share their
            weights, or only some matrices of a block's structures are among the layers.
    """
    of_kind = [each for each in KINDS[structure].find(model) if each.kind in REMOVED[structure]]
    name, shares = type(model).__name__, shares_layers(model)
    if problem := problem_with_structure(structure, name, is_known=bool(of_kind), shares_layers=shares):
        raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"structure {problem}")
    parts = [Part(each.kind, each.layers) for each in of_kind]
    if problem := problem_with_selection(structure, parts, layers):
        raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"include and exclude {problem}")
    return [each for each in of_kind if each.output in layers]
