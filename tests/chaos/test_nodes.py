"""A job whose ranks train on two nodes of a Ray cluster, one of which is lost: the demo with a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cluster_demo
import pytest
from demo_data import DemoInputs

from .counts import COUNTS


@pytest.mark.timeout(1800)
def test_ranks_on_two_nodes_resume_with_the_same_result(
    tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # the demo sets it
    inputs = DemoInputs(tiny.model, tiny.train, tiny.validation)
    assert cluster_demo.demonstrate(inputs, tiny.models.parent, tmp_path / "demo", steps=2000)
    COUNTS["Ray nodes lost"] += 1
