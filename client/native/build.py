"""Builds the native kernel with the system's C++ compiler. Needs Python alone: the build hook runs it, and so can you.

python client/native/build.py

The library is put where the Python package loads it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNEL = Path(__file__).parent / "kernel"
LIBRARY = Path(__file__).parents[1] / "mvprune/runtime/_native/libmvprune_kernel.so"

# Nothing of the C++ runtime is called, so nothing of it is linked in: the library depends on the C library only.
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
# GCC's own headers give a false alarm: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
_WARNINGS = ("-Wall", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized")
_AVX2 = ("-mavx2", "-mfma")
_FEW = ("-mavx512vnni", "-mavx512vbmi2", "-mpopcnt")
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


def architecture(command: Sequence[str]) -> str:
    """The architecture that a compiler builds for, as the kernel's names: "x86_64", "aarch64".

    Raises:
        BuildError: the compiler does not say.
    """
    machine = _run([*command, "-dumpmachine"]).partition("-")[0].strip()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def build(library: Path = LIBRARY, flags: Sequence[str] = ()) -> None:
    """Compiles the sources into a shared library, which appears whole or not at all.

    Args:
        library: where to.
        flags: more of them, for the compiler and the linker.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    if sys.platform == "win32":
        raise BuildError("the kernel needs POSIX threads, which Windows does not have")
    command = compiler()
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".build-") as folder:
        units = list(_units(architecture(command)))
        objects = [f"{folder}/{index}.o" for index in range(len(units))]
        with ThreadPoolExecutor() as pool:
            for done in [
                pool.submit(_run, [*command, *_FLAGS, *_WARNINGS, *flags, *unit, "-o", target])
                for unit, target in zip(units, objects, strict=True)
            ]:
                done.result()
        # The compiler's own helpers are copied in: the library then loads beside any other runtime.
        own = ("-static-libstdc++", "-static-libgcc") if sys.platform == "linux" else ()
        linked = Path(folder) / library.name
        _run([*command, "-shared", "-pthread", *own, *flags, *objects, "-o", str(linked)])
        linked.replace(library)


def _units(machine: str) -> Iterator[list[str]]:
    """The arguments that compile each object file: the kernel once for every instruction set of the architecture.

    Instructions beyond a set's flags are enabled in the source, function by function.
    """
    for name in ("api.cpp", "decoder_api.cpp", "masked_api.cpp", "pool.cpp"):
        yield ["-c", str(KERNEL / name)]
    sets: dict[str, tuple[str, ...]] = {"kBaseline": ()}
    dots: dict[str, tuple[str, ...]] = {}
    if machine == "x86_64":
        sets |= {"kAvx2": _AVX2, "kAvx512": _AVX512}
        dots |= {"kAvxVnni": (*_AVX2, "-DMVPRUNE_AVXVNNI"), "kAvx512VlVnni": (*_AVX2, "-DMVPRUNE_VNNI")}
        dots |= {"kAvx512Vnni": (*_AVX512, "-DMVPRUNE_VNNI")}
        for name in ("decoder.cpp", "masked.cpp"):
            yield [*_AVX512, *_FEW, "-c", str(KERNEL / name)]
    for table, flags in sets.items():
        yield [*flags, f"-DMVPRUNE_ISA={table}", "-c", str(KERNEL / "kernel.cpp")]
        dots[f"{table}Dots"] = flags
    for table, flags in dots.items():
        yield [*flags, f"-DMVPRUNE_DOTS={table}", "-c", str(KERNEL / "dots.cpp")]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    build()
