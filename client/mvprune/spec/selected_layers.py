"""Which layers include and exclude leave to prune, by their names.

Core and service say the same of a model: the core knows its modules, the service the names of its tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from mvprune.common.blocks import in_block

_SHOWN = 6  # names in a message


class Selected(NamedTuple):
    """The layers that are pruned, or what is wrong with the patterns.

    Attributes:
        names: of the layers.
        field: the option that is wrong: include or exclude; "" for none.
        problem: what is wrong with it.
    """

    names: tuple[str, ...] = ()
    field: str = ""
    problem: str = ""


def select_layers(
    layers: Sequence[Sequence[str]], others: Sequence[str], include: Sequence[str], exclude: Sequence[str]
) -> Selected:
    """The layers that are pruned: those that match include, or are in numbered blocks, and do not match exclude.

    Args:
        layers: the names of each layer that may be pruned; several of one that shares its weight. Such a layer is
            pruned under its first name, and stays dense if one of its names is excluded.
        others: the names of layers that are never pruned.
        include: shell patterns of names (`*.attention.*`), in place of the default.
        exclude: shell patterns of names to leave dense.
    """
    every = [*(name for names in layers for name in names), *others]
    shown = ", ".join(([name for name in every if in_block(name)] or every)[:_SHOWN])
    for field, patterns in (("include", include), ("exclude", exclude)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in every):
                problem = f"must match the name of a layer, such as {shown}, got {pattern!r}"
                return Selected(field=field, problem=problem)
    found = tuple(
        names[0]
        for names in layers
        if any(_matches(name, include) if include else in_block(name) for name in names)
        and not any(_matches(name, exclude) for name in names)
    )
    if found or not (include or exclude):
        return Selected(found)
    field, given = ("exclude", exclude) if exclude else ("include", include)
    problem = f"must leave a layer to prune, such as {shown}, got {', '.join(map(repr, given))}, which leaves none"
    return Selected(field=field, problem=problem)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
