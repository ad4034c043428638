"""The defaults that clients name are those of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvprune.spec.sweep_settings import SETTINGS
from mvprune.sweep.tickets.study import STEP
from mvprune.v1 import sweep_pb2
from mvprune_service.api.sweep_creation import policy_with_defaults
from mvprune_service.points import bounds_of

ROOT = Path(__file__).parents[4]
SEARCH = dict(zip(("min_density", "max_density", "tolerance"), bounds_of(sweep_pb2.SearchStrategy()), strict=True))
DEFAULTS = SEARCH | {"parallel": policy_with_defaults(sweep_pb2.SweepPolicy()).parallel, "step": STEP}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_the_same_everywhere(name: str) -> None:
    assert float(SETTINGS[name].default) == DEFAULTS[name]
    contract = (ROOT / "proto/mvprune/v1/sweep.proto").read_text()
    (line,) = (line for line in contract.splitlines() if f" {name} = " in line)
    assert f"default {DEFAULTS[name]:g}" in line
    options = (ROOT / "client/mvprune/spec/sweep_options.py").read_text()
    (line,) = (line for line in options.splitlines() if line.strip().startswith(f"{name}: ") and "|" not in line)
    assert line.endswith(f"default: {DEFAULTS[name]:g}.")
