"""Parts of the native library, compiled for ctypes: `parts.cpp` names the functions."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

ROOT = Path(__file__).parents[3]
NATIVE = ROOT / "client" / "native"
LIBRARY = "MVPRUNE_TEST_PARTS"
"""The variable that names a library compiled before: with sanitizers."""
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fno-rtti", "-Wall", "-Wextra", "-Werror")


def compiler() -> list[str]:
    """The command of the C++ compiler; the test is skipped without one."""
    command = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(command[0]):
        pytest.skip(f"there is no C++ compiler ({shlex.join(command)})")
    return command


def compile_parts(library: Path, flags: tuple[str, ...] = ()) -> None:
    """Compiles base/, text/ and parts.cpp into a shared library."""
    sources = [
        *sorted(NATIVE.glob("base/*.cpp")),
        *sorted(NATIVE.glob("text/*.cpp")),
        Path(__file__).with_name("parts.cpp"),
    ]
    subprocess.run([*compiler(), *FLAGS, *flags, "-shared", *sources, "-o", library], check=True)


@cache
def parts() -> ctypes.CDLL:
    """The library, compiled once for each process of tests."""
    given = os.environ.get(LIBRARY)
    if not given:
        folder = Path(mkdtemp())
        given = str(folder / "parts.so")
        compile_parts(Path(given))
        loaded = _declare(ctypes.CDLL(given))
        shutil.rmtree(folder)
        return loaded
    return _declare(ctypes.CDLL(given))


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    text, size = ctypes.c_char_p, ctypes.c_size_t
    library.test_zstd_size.argtypes = [text, size]
    library.test_zstd_size.restype = ctypes.c_int64
    library.test_zstd_unpack.argtypes = [text, size, ctypes.c_void_p, size]
    library.test_zstd_unpack.restype = text
    library.test_json.argtypes = [text, size]
    library.test_json.restype = text
    return library
