"""Programs in other languages open an artifact and print what Python computes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.unit.native.library.artifacts import made, saved
from tests.unit.native.library.interface import Model, library
from tests.unit.native.native_parts import compiler
from tests.unit.native.tokenizers_made import bert

from native import archive, build

EXAMPLES = build.HERE / "examples"
IDS = [5, 6, 7, 8, 9]


TEXT = "The model answers a question, and its score is 0.75"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=bert(True), pad_token="[PAD]")
    config = {"id2label": {0: "no", 1: "yes", 2: "may be"}, "vocab_size": len(tokenizer)}
    model = made("BERT", "ForSequenceClassification", **config)
    return saved(tmp_path_factory.mktemp("examples") / "out", model, tokenizer=tokenizer)


def run(*command: Any, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd, env=env
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


def wanted(folder: Path, text: str = "") -> str:
    with Model.open(folder) as model:
        logits = (model.run_texts([text])[0] if text else model.run([IDS])).values[0]
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


def needs(program: str) -> str:
    """The test is skipped where there is no such program, or one that does not work."""
    if not shutil.which(program) or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no {program}")
    return program


def test_rust(folder: Path, installed: Path, tmp_path: Path) -> None:
    link = ("-C", f"link-arg={installed / build.WHOLE.name}", "-C", f"link-arg=-Wl,-rpath,{installed}")
    run(needs("rustc"), "--edition", "2021", *link, EXAMPLES / "classify.rs", "-o", tmp_path / "classify")
    assert run(tmp_path / "classify", folder, TEXT).stdout == wanted(folder, TEXT)
    done = subprocess.run([tmp_path / "classify", tmp_path, "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "manifest.json: cannot be read" in done.stderr


def test_node(folder: Path, installed: Path, tmp_path: Path) -> None:
    node = Path(shutil.which(needs("node")) or "").resolve()
    headers = node.parents[1] / "include" / "node"
    if not (headers / "node_api.h").is_file():
        pytest.skip(f"the headers of node are not in {headers}")
    addon = tmp_path / "mvprune.node"
    flags = ("-shared", "-fPIC", f"-I{headers}", f"-I{installed}", f"-Wl,-rpath,{installed}")
    run(c_compiler(), *flags, EXAMPLES / "classify_node.c", installed / build.WHOLE.name, "-o", addon)
    code = (
        f"const found = require({str(addon)!r}).logits(process.argv[1], process.argv[2]);"
        "for (const [label, logit] of Object.entries(found)) console.log(`${label} ${logit.toFixed(6)}`);"
    )
    assert run(node, "-e", code, folder, TEXT).stdout == wanted(folder, TEXT)


@pytest.mark.slow
def test_go(folder: Path, installed: Path, tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("there is no go")
    library_file = installed / build.WHOLE.name
    environment = os.environ | {
        "CC": c_compiler(),
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-I{installed}",
        "CGO_LDFLAGS": f"{library_file} -Wl,-rpath,{installed}",
        "GOCACHE": str(tmp_path / "cache"),
        "GOTOOLCHAIN": "local",
    }
    shutil.copy(EXAMPLES / "classify.go", tmp_path)
    run("go", "build", "-o", tmp_path / "classify", "classify.go", cwd=tmp_path, env=environment)
    assert run(tmp_path / "classify", folder, TEXT).stdout == wanted(folder, TEXT)
    done = subprocess.run([tmp_path / "classify", tmp_path, "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: manifest.json: cannot be read")


@pytest.mark.slow
def test_java(folder: Path, installed: Path) -> None:
    found = run(needs("java"), "--version").stdout
    if int(found.split()[1].split(".")[0]) < 22:
        pytest.skip(f"foreign functions need Java 22 or newer, not {found.splitlines()[0]}")
    program = ("java", "--enable-native-access=ALL-UNNAMED", EXAMPLES / "Classify.java", installed / build.WHOLE.name)
    assert run(*program, folder, TEXT).stdout == wanted(folder, TEXT)
    done = subprocess.run(
        [str(part) for part in (*program, folder.parent, "x")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "manifest.json: cannot be read" in done.stderr


@pytest.fixture(scope="module")
def unpacked(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive for programs in C."""
    place = tmp_path_factory.mktemp("archive")
    archive.pack("1.2.3", installed / build.WHOLE.name, place / "mvprune.tar.gz")
    with tarfile.open(place / "mvprune.tar.gz") as file:
        file.extractall(place, filter="data")
    return place / "mvprune-1.2.3"


def test_the_archive_links_by_name(folder: Path, unpacked: Path, tmp_path: Path) -> None:
    """As pkg-config's flags say."""
    text = (unpacked / "lib/pkgconfig/mvprune.pc").read_text()
    assert "Version: 1.2.3\nCflags: -I${prefix}/include\nLibs: -L${prefix}/lib -lmvprune\n" in text
    flags = (f"-I{unpacked}/include", f"-L{unpacked}/lib", f"-Wl,-rpath,{unpacked}/lib")
    run(c_compiler(), *flags, EXAMPLES / "classify.c", "-lmvprune", "-o", tmp_path / "classify")
    assert run(tmp_path / "classify", folder, *IDS).stdout == wanted(folder)


def test_pkg_config(folder: Path, unpacked: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PKG_CONFIG_PATH": f"{unpacked}/lib/pkgconfig"}
    flags = run(needs("pkg-config"), "--cflags", "--libs", "mvprune", env=environment).stdout.split()
    program = tmp_path / "classify"
    run(c_compiler(), EXAMPLES / "classify.c", *flags, f"-Wl,-rpath,{unpacked}/lib", "-o", program)
    assert run(program, folder, *IDS).stdout == wanted(folder)


def test_cmake(folder: Path, unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(example C)\nfind_package(mvprune REQUIRED)\n"
        f"add_executable(classify {EXAMPLES}/classify.c)\ntarget_link_libraries(classify mvprune::mvprune)\n"
    )
    run(needs("cmake"), "-S", tmp_path, "-B", tmp_path / "built", f"-DCMAKE_PREFIX_PATH={unpacked}")
    run("cmake", "--build", tmp_path / "built")
    assert run(tmp_path / "built" / "classify", folder, *IDS).stdout == wanted(folder)
