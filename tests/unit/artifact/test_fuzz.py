"""Hostile weights files by the thousand, with bounds of memory and time; `make fuzz` looks for further ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz.hostile_weights import LENGTHS, Seeded, check, make

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_reading_costs_no_more_than_size_and_elements_allow() -> None:
    command = [sys.executable, "tests/fuzz/hostile_weights.py", "--seconds", "6", "--seed", "1000000"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    read, valid = (int(word) for word in done.stdout.split() if word.isdecimal())
    assert read > 50
    assert 0 < valid < read


def test_the_bound_would_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes 8 bytes for each row before it looks at anything is caught."""
    from mvprune.artifact import weights

    def wasteful(tensor: object, parts: object, base: object) -> None:
        import numpy as np

        raise weights.ArtifactError(f"{np.ones(1 << 24).sum()} rows")

    monkeypatch.setattr(weights, "unpack_parts", wasteful)
    content = next(
        made for seed in range(1000) if b'"layout' in (made := make(Seeded(seed))) and _opens(made, tmp_path)
    )
    with pytest.raises(AssertionError, match="bytes for"):
        check(content, tmp_path)


def _opens(content: bytes, folder: Path) -> bool:
    """Whether the header is valid and the tensors are small."""
    from mvprune.artifact import ArtifactError
    from mvprune.artifact.header import open_header

    path = folder / "w"
    path.write_bytes(content)
    try:
        header = open_header(path)
    except ArtifactError:
        return False
    return bool(header.packed) and not header.base and sum(map(_size, header.shapes().values())) < LENGTHS[9]


def _size(shape: tuple[int, ...]) -> int:
    import math

    return math.prod(shape)
