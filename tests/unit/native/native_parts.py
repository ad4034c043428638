"""Parts of the native library, compiled for ctypes: `parts.cpp` names the functions."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import pytest

ROOT = Path(__file__).parents[3]
NATIVE = ROOT / "client" / "native"
LIBRARY = "MVPRUNE_TEST_PARTS"
"""The variable that names a library compiled before: with sanitizers."""
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized")


def compiler() -> list[str]:
    """The command of the C++ compiler; the test is skipped without one."""
    command = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(command[0]):
        pytest.skip(f"there is no C++ compiler ({shlex.join(command)})")
    return command


def _compile(library: Path) -> None:
    """Compiles base/, text/ and parts.cpp into a shared library. Raises RuntimeError with what the compiler says."""
    command = [*compiler(), *FLAGS, "-shared", *map(str, _sources()), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the parts of the native library do not compile:\n{done.stderr}")


def _sources() -> list[Path]:
    return [
        *sorted(NATIVE.glob("base/*.cpp")),
        *sorted(NATIVE.glob("text/*.cpp")),
        Path(__file__).with_name("parts.cpp"),
    ]


def parts() -> ctypes.CDLL:
    """The library. Tests fail at once where it was found not to compile."""
    found = _opened()
    if isinstance(found, str):
        pytest.fail(found, pytrace=False)
    return found


@cache
def _opened() -> ctypes.CDLL | str:
    """The library, compiled once for all processes that test the same sources; or why it does not compile."""
    given = os.environ.get(LIBRARY)
    if given:
        return _declare(ctypes.CDLL(given))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*_sources(), *sorted(NATIVE.glob("[bt]*/*.h")))))
    kept = Path(gettempdir()) / f"mvprune-parts-{os.getuid()}-{digest.hexdigest()[:16]}.so"
    if not kept.exists():
        with TemporaryDirectory() as folder:
            try:
                _compile(Path(folder) / kept.name)
            except RuntimeError as error:
                return str(error)
            shutil.move(Path(folder) / kept.name, kept)
    return _declare(ctypes.CDLL(str(kept)))


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    text, size = ctypes.c_char_p, ctypes.c_size_t
    library.test_zstd_size.argtypes = [text, size]
    library.test_zstd_size.restype = ctypes.c_int64
    library.test_zstd_unpack.argtypes = [text, size, ctypes.c_void_p, size]
    library.test_zstd_unpack.restype = text
    library.test_json.argtypes = [text, size]
    library.test_json.restype = text
    library.test_tokenizer_open.argtypes = [text, size, ctypes.POINTER(text)]
    library.test_tokenizer_open.restype = ctypes.c_void_p
    library.test_tokenizer_close.argtypes = [ctypes.c_void_p]
    library.test_tokenizer_close.restype = None
    library.test_tokenizer_id.argtypes = [ctypes.c_void_p, text]
    library.test_tokenizer_id.restype = ctypes.c_int64
    library.test_encode.argtypes = [ctypes.c_void_p, text, size, text, size, ctypes.POINTER(ctypes.c_int64)]
    library.test_encode.restype = text
    library.test_decode.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), size, ctypes.c_bool]
    library.test_decode.restype = text
    return library
