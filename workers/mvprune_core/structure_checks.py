"""Checks of the options about structures: those that need no model."""

from __future__ import annotations

from mvprune.common.structures import GATED, METHODS
from mvprune.common.suggestions import must_be_one_of
from mvprune_core.methods import Method
from mvprune_core.options import check_choice, check_fraction
from mvprune_core.structure_kinds import KINDS, Structure, StructureOptions

_FILL_NEEDS_BLOCKS = "structure_fill must be False without structure blocks_and_units, got True; take that structure"


def checked_structure(
    method: Method,
    density: float | None,
    *,
    structure: Structure | None,
    structure_density: float | None,
    structure_block_size: int | None,
    structure_fill: bool,
    pattern: str | None,
    delta: bool,
) -> StructureOptions | None:
    """The options about structures, with defaults; None if single weights are pruned. The arguments are `compress`'s.

    Raises:
        ValueError: an option out of range, or some that do not go together.
    """
    if structure is None:
        for name, given in (("structure_density", structure_density), ("structure_block_size", structure_block_size)):
            if given is not None:
                raise ValueError(f"{name} must be None without structure, got {given!r}")
        if structure_fill:
            raise ValueError(_FILL_NEEDS_BLOCKS)
        return None
    check_choice("structure", structure, Structure)
    if method.name not in METHODS[structure]:
        raise ValueError(f"method {must_be_one_of(METHODS[structure], method.name)} with structure {structure}")
    if pattern is not None:
        raise ValueError(f"pattern must be None with a structure, got {pattern!r}")
    if delta:
        raise ValueError("delta must be False with a structure, which changes the shapes of the model, got True")
    if structure_density is not None:
        _check_density(method, structure_density, density)
    if structure_block_size is not None:
        _check_block_size(structure, structure_block_size)
    if structure_fill:
        _check_fill(structure, structure_density, density)
    block_size = structure_block_size or KINDS[structure].block_size
    return StructureOptions(structure, structure_density, block_size, structure_fill)


def _check_density(method: Method, structure_density: float, density: float | None) -> None:
    """Raises ValueError unless the method ranks weights, and the structures' density is above that of the weights."""
    if method.name in GATED:
        raise ValueError(
            f"structure_density must be None with method {method.name}, whose gates open all weights of a structure, "
            f"got {structure_density!r}; leave it out, or take another method"
        )
    check_fraction("structure_density", structure_density, "(0, 1]")
    if density is not None and structure_density <= density:
        raise ValueError(
            f"structure_density must be above density, {density:g}, got {structure_density:g}; leave it out to keep "
            "all weights of the structures that stay"
        )


def _check_block_size(structure: Structure, block_size: int) -> None:
    """Raises ValueError unless there are blocks, of at least one row."""
    if KINDS[structure].block_size is None:
        raise ValueError(f"structure_block_size must be None without structure blocks_and_units, got {block_size!r}")
    if not isinstance(block_size, int) or block_size < 1:
        raise ValueError(f"structure_block_size must be a whole number of at least 1, got {block_size!r}")


def _check_fill(structure: Structure, structure_density: float | None, density: float | None) -> None:
    """Raises ValueError unless blocks are pruned, and what stays is to be dense."""
    if KINDS[structure].block_size is None:
        raise ValueError(_FILL_NEEDS_BLOCKS)
    if structure_density is not None:
        raise ValueError("structure_fill must be False with structure_density, which prunes what stays, got True")
    if density == 1:
        raise ValueError("structure_fill must be False with density 1, at which nothing is pruned, got True")
