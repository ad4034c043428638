"""Pruning methods, one per file. A new method is a named `Method` in a file of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType

from mvprune.common.plugins import classes_in, plugins
from mvprune.common.suggestions import must_be_one_of
from mvprune_core.methods.base import Gated, Matrix, Method, PruningStep, TopV
from mvprune_core.methods.l0 import L0
from mvprune_core.methods.locked_mask import LockedMask
from mvprune_core.methods.magnitude import Magnitude, OneShotMagnitude
from mvprune_core.methods.movement import Movement
from mvprune_core.methods.obert import OBERT
from mvprune_core.methods.platon import Platon
from mvprune_core.methods.random import Random
from mvprune_core.methods.rigl import RigL
from mvprune_core.methods.rpp import RPP
from mvprune_core.methods.smp import SMP
from mvprune_core.methods.soft_movement import SoftMovement
from mvprune_core.methods.sparse_momentum import SparseMomentum

GROUP = "mvprune.methods"
"""The entry points of other packages: the name of a method, and its class."""
METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {cls.name: cls for cls in classes_in(__name__, __path__, Method, "name")}
)
"""All methods by name, in alphabetical order of the files."""


def get_method(method: str | Method) -> Method:
    """The method with this name and default options, one of `METHODS` or an entry point of another package; a `Method`
    is returned unchanged.

    Raises:
        ValueError: no method has that name.
    """
    if isinstance(method, Method):
        return method
    for found in chain((METHODS.get(method),), plugins(GROUP, method)):
        if found is not None:
            chosen: Method = found()
            return chosen
    raise ValueError(
        f"method {must_be_one_of(METHODS, method)}; no installed package has it as an entry point of {GROUP} either"
    )


__all__ = [
    "L0",
    "METHODS",
    "OBERT",
    "RPP",
    "SMP",
    "Gated",
    "LockedMask",
    "Magnitude",
    "Matrix",
    "Method",
    "Movement",
    "OneShotMagnitude",
    "Platon",
    "PruningStep",
    "Random",
    "RigL",
    "SoftMovement",
    "SparseMomentum",
    "TopV",
    "get_method",
]
