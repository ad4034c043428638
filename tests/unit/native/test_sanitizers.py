"""The parts of the native library under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.native.native_parts import LIBRARY, ROOT, SANITIZE, compile_parts, compiler


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_parts_are_clean_under_sanitizers(tmp_path: Path) -> None:
    asked = [*compiler(), "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    library = tmp_path / "parts.so"
    compile_parts(library, SANITIZE)
    leaks = {"ASAN_OPTIONS": "detect_leaks=0"}  # Python's own
    environment = {**os.environ, **leaks, "LD_PRELOAD": runtime, LIBRARY: str(library)}
    tests = [str(path) for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
