"""The kernel for 64-bit ARM: built by a cross compiler, run by an emulator, on a machine of another architecture."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.kernel_cases import KERNEL_TESTS

from native import build

ROOT = Path(__file__).parents[3]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command that runs kernel_driver.cpp with the library that a wheel for ARM contains."""
    if platform.machine() == "aarch64":
        pytest.skip("the tests of the kernel test NEON on this machine")
    for program, package in ((COMPILER, "g++-aarch64-linux-gnu"), (EMULATOR, "qemu-user")):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}: the Debian package {package} has it")
    folder = tmp_path_factory.mktemp("arm")
    library, driver = folder / build.LIBRARY.name, folder / "driver"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", COMPILER)
        build.build(library)
    main = Path(__file__).with_name("kernel_driver.cpp")
    _run(COMPILER, "-std=c++17", "-O1", f"-I{build.KERNEL}", main, library, f"-Wl,-rpath,{folder}", "-o", driver)
    system = Path(_run(COMPILER, "-print-file-name=libc.so.6").strip()).resolve().parents[1]
    return f"{EMULATOR} -L {system} {driver}"


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_neon_kernel_agrees_with_numpy(emulator: str) -> None:
    """The same tests, except for what is about this machine's library and processes."""
    left_out = "not environment and not forked and not library and not many_threads and not threads_of_torch"
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-k", left_out]
    tests = [str(Path(__file__).with_name(name)) for name in KERNEL_TESTS]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "MVPRUNE_TEST_EMULATOR": emulator}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "neon" not in done.stdout  # none of its tests was skipped
    assert " passed" in done.stdout
