"""Densities that other options give."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.domain.density import fill_density


@pytest.mark.parametrize(
    ("spec", "density", "note"),
    [
        ({"pattern": "2:4"}, 0.5, "the density is 0.5, that of the pattern 2:4"),
        ({"pattern": "1:3"}, 1 / 3, "the density is 0.3333, that of the pattern 1:3"),
        ({"pattern": "2:4", "target_density": 0.3}, 0.3, ""),
        ({"pattern": "4:2"}, 0, ""),
        ({"pattern": "2:4", "locked_mask": {"mask_from": {"model": "m"}}}, 0, ""),
        ({}, 0, ""),
    ],
)
def test_a_pattern_has_a_density(spec: dict[str, Any], density: float, note: str) -> None:
    message = job_pb2.CompressionSpec(**spec)
    assert fill_density(message) == note
    assert message.target_density == density
