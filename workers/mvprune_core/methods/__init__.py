"""Pruning methods: one file a method. A new one needs its file and its line in METHODS, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mvprune_core.methods.base import Matrix, Method, Moment, TopV
from mvprune_core.methods.l0 import L0
from mvprune_core.methods.magnitude import Magnitude, OneShotMagnitude
from mvprune_core.methods.movement import Movement
from mvprune_core.methods.random import Random
from mvprune_core.methods.soft_movement import SoftMovement

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {cls.name: cls for cls in (Movement, SoftMovement, L0, Magnitude, OneShotMagnitude, Random)}
)


def get_method(method: str | Method) -> Method:
    """The method of that name with its default options; a `Method` is returned as it is.

    Raises:
        ValueError: no method has that name.
    """
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise ValueError(f"method: {method!r} given; one of {', '.join(METHODS)} is allowed")
    return METHODS[method]()


__all__ = [
    "L0",
    "METHODS",
    "Magnitude",
    "Matrix",
    "Method",
    "Moment",
    "Movement",
    "OneShotMagnitude",
    "Random",
    "SoftMovement",
    "TopV",
    "get_method",
]
