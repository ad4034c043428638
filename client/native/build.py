"""Builds the native libraries with the system's C++ compiler. Needs only Python: the build hook runs it; so can you.

python client/native/build.py
python client/native/build.py web

They are put where the Python package loads them: libmvprune_kernel.so, which knows matrices, and libmvprune.so.1, which
opens artifacts, with its header. The latter has the objects of the former in it, so that it needs no other file.
With "web", the latter is compiled to WebAssembly instead, for the npm package in client/web.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
KERNEL = HERE / "kernel"
EXPORTS = HERE / "library" / "exports.map"
HEADER = HERE / "include" / "mvprune.h"
LIBRARY = HERE.parent / "mvprune/runtime/_native/libmvprune_kernel.so"
WEB = HERE.parent / "web"
WHOLE = LIBRARY.with_name("libmvprune.so.1")

_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-rtti")
# Nothing of the C++ runtime is called, so nothing of it is linked in: the kernel depends on the C library only.
_OF_KERNEL = ("-O3", "-fno-exceptions")
# Only memory that is short throws here.
_OF_WHOLE = ("-O2", "-ffunction-sections", "-fdata-sections")
# GCC's own headers give a false alarm: https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593
_WARNINGS = ("-Wall", "-Wextra", "-Wno-uninitialized", "-Wno-maybe-uninitialized")
_WASM = "wasm32"
# What mvprune.js calls, beside malloc and free.
_CALLED = ["open_files", "describe", "predict", "encode", "close", "error_text", "error_free"]
_CALLED += ["output_text", "output_values", "output_free"]
_OF_WEB = ("-msimd128", "-std=c++17", "-fvisibility=hidden", "-fno-rtti", "-fno-exceptions")
_WHOLE_OF_WEB = ("-Oz", "-fno-sized-deallocation", "-fno-threadsafe-statics", "-fno-c++-static-destructors")
_RELAXED = ("-mrelaxed-simd", "-ffp-contract=fast")
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


def build(library: Path = LIBRARY, flags: Sequence[str] = (), *, whole: Path | None = None) -> None:
    """Compiles the sources into shared libraries, each of which appears whole or not at all.

    What the same compiler has made of the same sources, as a note beside the libraries says, is not compiled again.

    Args:
        library: where to, the kernel.
        flags: more of them, for the compiler and the linker.
        whole: where to, libmvprune.so.1, with its header beside it; None: it is not built.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    if sys.platform == "win32":
        raise BuildError("the kernel needs POSIX threads, which Windows does not have")
    command = compiler()
    machine = architecture(command)
    files = [library] if whole is None else [library, whole, whole.with_name(HEADER.name)]
    note = library.with_name(f".{library.name}.made-of")
    made_of = _made_of([*command, *flags], files)
    if note.exists() and note.read_text() == made_of and all(file.exists() for file in files):
        return
    note.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".build-") as folder:
        units = [[*_OF_KERNEL, *unit] for unit in _units(machine)]
        count = len(units)
        if whole is not None:
            units += [[*_OF_WHOLE, "-c", str(source)] for source in whole_sources()]
        objects = [f"{folder}/{index}.o" for index in range(len(units))]
        with ThreadPoolExecutor() as pool:
            for done in [
                pool.submit(_run, [*command, *_FLAGS, *_WARNINGS, *unit, *flags, "-o", target])
                for unit, target in zip(units, objects, strict=True)
            ]:
                done.result()
        link = [*command, "-shared", "-pthread", *flags]
        if sys.platform == "linux":
            # The compiler's own helpers are copied in: the libraries then load beside any other runtime.
            link += ["-static-libstdc++", "-static-libgcc"]
        _link([*link, *objects[:count]], library, folder)
        if whole is not None:
            _link([*link, *objects, *_exports(folder)], whole, folder)
            shutil.copyfile(HEADER, whole.with_name(HEADER.name))
        note.write_text(made_of)


def zig() -> list[str]:
    """The command of the C++ compiler for WebAssembly: $ZIG, else that of the package ziglang, else zig.

    Raises:
        BuildError: there is none.
    """
    if os.environ.get("ZIG"):
        return [*shlex.split(os.environ["ZIG"]), "c++"]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    if shutil.which("zig"):
        return ["zig", "c++"]
    raise BuildError("there is no compiler for WebAssembly: pip install ziglang")


def build_web(folder: Path = WEB) -> None:
    """Compiles the library and the kernel into two WebAssembly files, which have no threads and read no files.

    mvprune-relaxed.wasm is for engines with relaxed SIMD: multiplications and additions are one instruction there.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    target = [*zig(), "-target", f"{_WASM}-wasi"]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as made:
        kernel = [["-O3", *unit] for unit in _units(_WASM)]
        whole = [[*_WHOLE_OF_WEB, "-c", str(source)] for source in whole_sources(_WASM)]
        units = [*kernel, *whole, *([*_RELAXED, *unit] for unit in kernel)]
        objects = [f"{made}/{index}.o" for index in range(len(units))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(
                pool.map(_run, ([*target, *_OF_WEB, *unit, "-o", to] for unit, to in zip(units, objects, strict=True)))
            )
        exports = [f"-Wl,--export={name}" for name in ("malloc", "free", *(f"mvprune_{name}" for name in _CALLED))]
        link = [*target, "-mexec-model=reactor", "-O3", "-s", "-Wl,--gc-sections", *exports]
        _link([*link, *objects[: len(kernel) + len(whole)]], folder / "mvprune.wasm", made)
        _link([*link, *objects[len(kernel) :]], folder / "mvprune-relaxed.wasm", made)


def whole_sources(machine: str = "") -> list[Path]:
    """Those of libmvprune.so.1 that are not the kernel's."""
    parts, others = ["base", "text", "answers", "library"], []
    if machine == _WASM:  # what a page gives comes first, so that the linker takes nothing else
        parts, others = ["page", *parts], ["old_glibc.cpp", "numbers.cpp"]
    found = [source for part in parts for source in sorted((HERE / part).glob("*.cpp"))]
    return [source for source in found if source.name not in others]


def _exports(folder: str) -> list[str]:
    """What makes the linker export the names of the interface and nothing else."""
    if sys.platform == "linux":
        return [f"-Wl,--version-script={EXPORTS}", f"-Wl,-soname,{WHOLE.name}", "-Wl,--gc-sections"]
    listed = Path(folder) / "exports"
    listed.write_text("".join(f"_{name}\n" for name in _names()))
    return [f"-Wl,-exported_symbols_list,{listed}", "-Wl,-dead_strip", f"-Wl,-install_name,@rpath/{WHOLE.name}"]


def _names() -> list[str]:
    """The functions of the interface."""
    return [line.strip(" ;") for line in EXPORTS.read_text().splitlines() if line.strip().startswith("mvprune_")]


def _made_of(command: Sequence[str], files: Sequence[Path]) -> str:
    """A digest of all that the files depend on: the compiler and its flags, and the sources."""
    names = (*command, _run([*command, "--version"]), *(file.name for file in files))
    digest = hashlib.sha256("\0".join(names).encode())
    for path in (Path(__file__), *sorted(HERE.glob("*/*.cpp")), *sorted(HERE.glob("*/*.h")), EXPORTS):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _link(command: list[str], library: Path, folder: str) -> None:
    linked = Path(folder) / library.name
    _run([*command, "-o", str(linked)])
    linked.replace(library)


def _units(machine: str) -> Iterator[list[str]]:
    """The arguments that compile each object file: the kernel once for every instruction set of the architecture.

    Instructions beyond a set's flags are enabled in the source, function by function.
    """
    for name in ("api.cpp", "decoder_api.cpp", "masked_api.cpp", "pool_alone.cpp" if machine == _WASM else "pool.cpp"):
        yield ["-c", str(KERNEL / name)]
    sets: dict[str, tuple[str, ...]] = {"kBaseline": ()}
    decoders: dict[str, tuple[str, ...]] = {"kDecoderBaseline": ()}
    dots: dict[str, tuple[str, ...]] = {}
    if machine == "x86_64":
        sets |= {"kAvx2": _AVX2, "kAvx512": _AVX512}
        dots |= {"kAvxVnni": (*_AVX2, "-DMVPRUNE_AVXVNNI"), "kAvx512VlVnni": (*_AVX2, "-DMVPRUNE_VNNI")}
        dots |= {"kAvx512Vnni": (*_AVX512, "-DMVPRUNE_VNNI")}
        decoders["kDecoderAvx2"] = _AVX2
        for name in ("decoder.cpp", "masked.cpp"):
            yield [*_AVX512, *_FEW, "-c", str(KERNEL / name)]
    for table, flags in sets.items():
        yield [*flags, f"-DMVPRUNE_ISA={table}", "-c", str(KERNEL / "kernel.cpp")]
        dots[f"{table}Dots"] = flags
    for table, flags in decoders.items():
        yield [*flags, f"-DMVPRUNE_DECODER={table}", "-c", str(KERNEL / "decoder_any.cpp")]
    for table, flags in dots.items():
        yield [*flags, f"-DMVPRUNE_DOTS={table}", "-c", str(KERNEL / "dots.cpp")]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    if sys.argv[1:] == ["web"]:
        build_web()
    else:
        build(whole=WHOLE)
