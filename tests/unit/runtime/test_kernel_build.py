"""How the native kernel is built: without a compiler, for a wheel, and under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.unit.runtime.kernel_cases import KERNEL_TESTS

from native import build

SANITIZE = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which Python runs with the sanitizers' library."""
    try:
        asked = [*build.compiler(), "-print-file-name=libasan.so"]
    except build.BuildError as error:
        pytest.skip(str(error))
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("the compiler has no address sanitizer")
    library = tmp_path_factory.mktemp("sanitized") / "kernel.so"
    build.build(library, SANITIZE)
    leaks = {"ASAN_OPTIONS": "detect_leaks=0"}  # Python's own
    return {**os.environ, **leaks, "LD_PRELOAD": runtime, "MVPRUNE_TEST_LIBRARY": str(library)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_kernel_is_clean_under_sanitizers(sanitized: dict[str, str]) -> None:
    names = (*KERNEL_TESTS, "test_passes.py", "test_masked.py", "test_vocabulary.py", "test_decoder.py")
    tests = [str(Path(__file__).with_name(name)) for name in names]
    seed = "--hypothesis-seed=0"  # as of the other tests, which take theirs from the conftest
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", seed, "-k", "not environment"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=sanitized)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


@pytest.mark.slow
def test_the_sanitizers_would_tell(sanitized: dict[str, str]) -> None:
    code = (
        "import numpy as np, os, pathlib; from mvprune.runtime import kernel\n"
        "kernel._LIBRARY = pathlib.Path(os.environ['MVPRUNE_TEST_LIBRARY'])\n"
        "packed, x = kernel.Packed.pack(np.ones((40, 40), np.float32)), np.ones((9, 40), np.float32)\n"
        "y = np.ones((9, 40), np.float32)\n"
        "packed.linear(x.ctypes.data, y.ctypes.data, 10)\n"  # a token too many
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=sanitized)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


def test_without_a_compiler_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(build.BuildError, match="there is no C\\+\\+ compiler \\(no-such-compiler -m64\\)"):
        build.build(tmp_path / "kernel.so")
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.BuildError, match="false -dumpmachine"):
        build.build(tmp_path / "kernel.so")
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_without_a_kernel_is_for_any_platform(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for part in ("client", "service", "workers", "migrations"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source / name)
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "build", "--wheel", "--out-dir", tmp_path, source]
    environment = os.environ | {"CXX": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "without its native kernel: there is no C++ compiler (no-such-compiler)" in done.stderr
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".cpp", ".h"))]
