"""The instruction sets of this machine, one after another, for the tests of the native kernel."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime import emulated

from mvprune.runtime import kernel

if library := os.environ.get("MVPRUNE_TEST_LIBRARY"):  # test_sanitizers.py: the same tests
    kernel._LIBRARY = Path(library)
EMULATOR = shlex.split(os.environ.get("MVPRUNE_TEST_EMULATOR", ""))  # test_kernel_arm.py: the same tests, of NEON
if EMULATOR:
    kernel._library = emulated.library(EMULATOR)

needs_kernel = pytest.mark.skipif(bool(kernel.load()), reason=kernel.load())
BASELINE, ABSENT = ("neon", "avx2") if EMULATOR or platform.machine() == "aarch64" else ("generic", "neon")


@pytest.fixture(params=["avx512", "avx2", BASELINE])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each instruction set that this machine has, in use."""
    monkeypatch.setenv("MVPRUNE_KERNEL", request.param)
    kernel._library.cache_clear()
    if reason := kernel.load():
        pytest.skip(reason)
    yield kernel.isa()
    monkeypatch.undo()
    kernel._library.cache_clear()
    assert kernel.load() == ""  # chosen anew
