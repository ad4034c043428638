"""Values of every parameter, of types that it does not take: refused at their place, never an internal error."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from mvprune.sources.references import Roots
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import sweep_pb2
from mvprune_service.api.checks.data_checks import DataChecks
from mvprune_service.api.checks.sweep_plan import Surroundings, plan_extension, plan_sweep

from .gym import BASE

VALUES: list[Any] = [["x"], [], [["x"]], [1, True], {}, {"a": [1]}, "x", "", "job:", True, 0, -1, 1.5, 1e300, None]
AROUND = Surroundings(Roots(), None, None, DataChecks(), "p", math.inf)
PLACES = {"axis": "axes[0].values[0]", "drawn": "axes[0].values[0]", "point": "points[0]"}


def spec_with(place: str, name: str, value: Any) -> dict[str, Any]:
    base: dict[str, Any] = BASE | {"target_density": 0.1}
    if place == "point":
        return {"base": base, "points": [{name: value}]}
    drawn = {"random": {"points": 1}} if place == "drawn" else {}
    return {"base": base, "axes": [{"parameter": name, "values": [value]}]} | drawn


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", PARAMETERS)
def test_no_value_is_an_internal_error(name: str, place: str) -> None:
    for value in VALUES:
        sweep = ParseDict({"spec": spec_with(place, name, value)}, sweep_pb2.Sweep())
        violations = plan_sweep(sweep, AROUND, 10).violations
        assert all(field.startswith("sweep.") and text for field, text in violations)
        if place != "drawn":
            request = ParseDict(
                {key: given for key, given in spec_with(place, name, value).items() if key != "base"},
                sweep_pb2.ExtendSweepRequest(),
            )
            assert bool(plan_extension(sweep, request, AROUND).violations) == bool(violations)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [["x"], "x", ["job:a", "train"]])
def test_a_baseline_that_is_none_is_refused_at_its_place(place: str, value: Any) -> None:
    sweep = ParseDict({"spec": spec_with(place, "baseline", value)}, sweep_pb2.Sweep())
    [(field, text)] = plan_sweep(sweep, AROUND, 10).violations
    assert field == f"sweep.spec.{PLACES[place]}" + (".baseline" if place == "point" else "")
    assert ("job:ID, train or none" in text) or ("must be" in text and repr(value) in text)
