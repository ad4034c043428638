"""The defaults that clients name are those of the server."""

from __future__ import annotations

import pytest

from mvprune.spec.parameters import SETTINGS
from mvprune.sweep.tickets.study import STEP
from mvprune.v1 import sweep_pb2
from mvprune_service.api.sweep_creation import policy_with_defaults
from mvprune_service.sweeps.points import bounds_of

SEARCH = dict(zip(("min_density", "max_density"), bounds_of(sweep_pb2.SearchStrategy()), strict=False))
DEFAULTS = SEARCH | {"parallel": policy_with_defaults(sweep_pb2.SweepPolicy()).parallel, "step": STEP}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_the_same_everywhere(name: str) -> None:
    assert float(SETTINGS[name].default) == DEFAULTS[name]


def test_the_tolerance_depends_on_the_way() -> None:
    way = sweep_pb2.SearchStrategy
    descent, bisection = (bounds_of(way(way=one))[2] for one in (way.DESCENT, way.BISECTION))
    assert SETTINGS["tolerance"].default == f"{descent:g} in a descent, {bisection:g} in a bisection"
