"""A job that the trainer can run in this process."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.v1 import job_pb2

from ...conftest import server_path


@pytest.fixture
def spec(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> job_pb2.CompressionSpec:
    """A job on the tiny model that could run."""
    monkeypatch.setenv("MVPRUNE_MODELS", str(tiny.models))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tiny.train.parent))
    monkeypatch.delenv("MVPRUNE_DATA", raising=False)
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", target_density=0.25)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 10
    return spec
