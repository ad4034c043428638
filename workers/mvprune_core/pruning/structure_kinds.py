"""The words of `structure`: which structures may be removed, and their selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact.structures import Structures, find_layers, find_structures, shares_layers
from mvprune.spec.patterns import BLOCK, problem_with_heads
from mvprune.spec.run_options import RunOptions
from mvprune.spec.structures import BLOCK_SIZE, Part, problem_with_selection, problem_with_structure
from mvprune.spec.structures import KINDS as REMOVED
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.pruning.blocks import BlocksAndUnits, check_block_size
from mvprune_core.pruning.layers import EveryOther, WholeLayers
from mvprune_core.pruning.selectors import Selector
from mvprune_core.pruning.sparse_structures import SparseStructures
from mvprune_core.pruning.structures import WholeStructures

Structure = Literal["heads", "units", "heads_and_units", "blocks_and_units", "layers"]


@dataclass(frozen=True)
class StructureKind:
    """The meaning of a word of `structure`.

    Attributes:
        select: makes the selector of a model's structures.
        find: finds all structures of a model.
        block_size: rows and columns of a block by default, if blocks are pruned.
    """

    select: Callable[[nn.Module, Sequence[Structures], RunOptions], Selector]
    find: Callable[[nn.Module], Iterable[Structures]] = find_structures
    block_size: int | None = None


def _heads_and_units(model: nn.Module, structures: Sequence[Structures], _: RunOptions) -> Selector:
    return WholeStructures(model, structures)


def _blocks_and_units(model: nn.Module, structures: Sequence[Structures], options: RunOptions) -> Selector:
    size = options.structure_block_size or BLOCK_SIZE
    check_block_size(size, structures)
    return BlocksAndUnits(model, structures, size, fills=options.structure_fill)


def _layers(_: nn.Module, structures: Sequence[Structures], options: RunOptions) -> Selector:
    if options.layer_dropout is None:
        return WholeLayers(structures)
    return EveryOther(structures, options.structure_density or options.density or 1.0)


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
    model: nn.Module, structures: Sequence[Structures], structure: Structure, options: RunOptions
) -> Selector:
    """The selector of the structures, and among the weights inside them if these are to be sparse.

    Args:
        model: the model, before anything is removed.
        structures: those that may be removed.
        structure: what is pruned.
        options: of the run.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, blocks do not fit the heads.
    """
    whole = KINDS[structure].select(model, structures, options)
    if options.structure_density is None or options.density is None:
        return whole
    block = BLOCK if options.pattern else 1
    return SparseStructures(whole, structures, options.density, options.structure_density, block)


def pruned_structures(
    model: nn.Module, layers: Mapping[str, nn.Linear | Conv1D], structure: Structure, *, in_blocks: bool = False
) -> list[Structures]:
    """The heads and units, or the encoder's layers, that may be removed: those whose matrices are among `layers`.

    Args:
        model: before anything is removed.
        layers: that are pruned, by name.
        structure: what is pruned.
        in_blocks: whether blocks of four weights are kept or dropped together. Units then are as well: the blocks of a
            matrix that loses single columns would not begin at multiples of four any more.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, the model has no structures of a known shape, its layers share their
            weights, only some matrices of a block's structures are among the layers, or heads are no multiple of four.
    """
    of_kind = [each for each in KINDS[structure].find(model) if each.kind in REMOVED[structure]]
    name, shares = type(model).__name__, shares_layers(model)
    if problem := problem_with_structure(structure, name, is_known=bool(of_kind), shares_layers=shares):
        raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"structure {problem}")
    parts = [Part(each.kind, each.layers) for each in of_kind]
    if problem := problem_with_selection(structure, parts, layers):
        raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"include and exclude {problem}")
    chosen = [each for each in of_kind if each.output in layers]
    if not in_blocks:
        return chosen
    for each in chosen:
        if each.kind == "heads" and each.size % BLOCK:
            raise CompressionError(
                Reason.UNSUPPORTED_ARCHITECTURE, f"pattern {problem_with_heads(each.size, each.block)}"
            )
    return [replace(each, size=BLOCK) if each.kind == "units" else each for each in chosen]
