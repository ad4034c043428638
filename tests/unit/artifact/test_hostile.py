"""Weights files that were cut or changed: refused in one sentence, nothing else."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.artifact.hostile_files import refused

from mvprune.artifact import ArtifactError, Base, read_weights, write_weights

GOLDENS = tuple(
    (Path(__file__).parent / "golden" / f"{name}.safetensors").read_bytes() for name in ("fp16", "int8", "int4")
)


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "w"
    for golden in GOLDENS:
        path.write_bytes(golden)
        for length in reversed(range(len(golden))):
            os.truncate(path, length)
            with pytest.raises(ArtifactError):
                read_weights(path)


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_changed_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """A file that was changed is refused or is another valid file; which of them it is, the manifest's digest knows."""
    content = bytearray(data.draw(st.sampled_from(GOLDENS)))
    inside = st.one_of(st.integers(0, len(content) - 1), st.integers(0, 1100))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(inside)] = data.draw(st.integers(0, 255))
    path = tmp_path / "w"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    with contextlib.suppress(ArtifactError):
        assert all(isinstance(array, np.ndarray) for array in read_weights(path).values())


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "w"
    for prefix in (b"", len(content).to_bytes(8, "little")):
        path.write_bytes(prefix + content)
        with pytest.raises(ArtifactError):
            read_weights(path)


def test_not_a_file(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be read")
    refused(tmp_path / "missing", "cannot be read (No such file")


def test_a_changed_file_never_passes_for_another(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writing is deterministic, so two files with the same tensors have the same digest."""
    for name in ("a", "b"):
        write_weights(tmp_path / name, dict(reversed(tensors.items())) if name == "b" else tensors, ["gaps"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file must contain the header"),
        (b"\x02\0\0\0\0\0\0\0{]", "invalid JSON"),
        (GOLDENS[0][:-1], "the tensors must take"),
    ],
)
def test_a_hostile_base(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ArtifactError, match=reason):
        Base(tmp_path)
