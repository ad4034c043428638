"""Programs in other languages open an artifact and print what Python computes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.native.library.artifacts import made, saved
from tests.unit.native.library.interface import Model, library
from tests.unit.native.native_parts import compiler

from native import build

EXAMPLES = build.HERE / "examples"
IDS = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = {"id2label": {0: "no", 1: "yes", 2: "may be"}}
    return saved(tmp_path_factory.mktemp("examples") / "out", made("BERT", "ForSequenceClassification", **labels))


def run(*command: Any, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd, env=env
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


def wanted(folder: Path) -> str:
    with Model.open(folder) as model:
        logits = model.run([IDS]).values[0]
        return "".join(f"{label} {logit:.6f}\n" for label, logit in zip(model.labels, logits, strict=True))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library and the header, as a wheel has them."""
    library()  # skips where it was not built
    place = tmp_path_factory.mktemp("installed")
    for file in (build.WHOLE, build.HEADER):
        shutil.copy(file, place / file.name)
    return place


def c_compiler() -> str:
    command = compiler()[0].replace("g++", "gcc").replace("c++", "cc")
    if not shutil.which(command):
        pytest.skip(f"there is no C compiler ({command})")
    return command


def test_c(folder: Path, installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "classify"
    flags = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{installed}", f"-Wl,-rpath,{installed}")
    run(c_compiler(), *flags, EXAMPLES / "classify.c", installed / build.WHOLE.name, "-o", program)
    assert run(program, folder, *IDS).stdout == wanted(folder)
    done = subprocess.run([program, folder.parent, "5"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: manifest.json: cannot be read")


def test_the_header_is_cpp_too(installed: Path, tmp_path: Path) -> None:
    source = tmp_path / "header.cpp"
    source.write_text(
        "#include <mvprune.h>\nint main() { mvprune_open_options o; MVPRUNE_INIT(o);\n"
        "return mvprune_version() < 1000 || o.activations; }\n"
    )
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{installed}", f"-Wl,-rpath,{installed}")
    run(*compiler(), *flags, source, installed / build.WHOLE.name, "-o", tmp_path / "header")
    run(tmp_path / "header")
