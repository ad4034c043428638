"""Builds the native kernel with the system's C++ compiler. Needs Python alone: the build hook runs it, and so can you.

python client/mvprune/runtime/_native/build.py
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent
LIBRARY = SOURCES / "libmvprune_kernel.so"

_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden")
# GCC's own headers give a false alarm: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
_WARNINGS = ("-Wall", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized")
_AVX2 = ("-mavx2", "-mfma")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512")


class BuildError(Exception):
    """There is no compiler, or it fails: the text says which."""


def compiler() -> list[str]:
    """The command of the compiler: $CXX, else the first of c++, g++ and clang++ that is there.

    Raises:
        BuildError: there is none.
    """
    wanted = os.environ.get("CXX")
    for command in [shlex.split(wanted)] if wanted else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    raise BuildError(f"there is no C++ compiler ({wanted or 'c++, g++, clang++'})")


def build(library: Path = LIBRARY, flags: Sequence[str] = ()) -> None:
    """Compiles the sources into a shared library, which appears whole or not at all.

    Args:
        library: where to.
        flags: more of them, for the compiler and the linker.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    command = compiler()
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".build-") as folder:
        units = list(_units())
        objects = [f"{folder}/{index}.o" for index in range(len(units))]
        with ThreadPoolExecutor() as pool:
            for done in [
                pool.submit(_run, [*command, *_FLAGS, *_WARNINGS, *flags, *unit, "-o", target])
                for unit, target in zip(units, objects, strict=True)
            ]:
                done.result()
        # Its own copy of the C++ runtime: it then loads beside any other.
        own = ("-static-libstdc++", "-static-libgcc") if sys.platform == "linux" else ()
        linked = Path(folder) / library.name
        _run([*command, "-shared", "-pthread", *own, *flags, *objects, "-o", str(linked)])
        linked.replace(library)


def _units() -> Iterator[list[str]]:
    """The arguments that compile each object file: the kernel once for every instruction set."""
    for name in ("api.cpp", "pool.cpp"):
        yield ["-c", str(SOURCES / name)]
    sets: dict[str, tuple[str, ...]] = {"kBaseline": ()}
    if platform.machine().lower() in ("x86_64", "amd64"):
        sets |= {"kAvx2": _AVX2, "kAvx512": _AVX512}
    for table, flags in sets.items():
        yield [*flags, f"-DMVPRUNE_ISA={table}", "-c", str(SOURCES / "kernel.cpp")]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}")


if __name__ == "__main__":
    build()
