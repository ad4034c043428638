"""The wheel in a bare environment: what a user of the thin client gets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")


def _run(*command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **env})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    built = _run(UV, "build", "--wheel", "--out-dir", folder, ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel and its base dependencies alone."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    made = _run(UV, "venv", "--python", sys.executable, folder)
    assert made.returncode == 0, made.stderr
    links = os.environ.get("PIP_FIND_LINKS")
    options = ["--find-links", links] if links else []
    installed = _run(UV, "pip", "install", "--python", folder / "bin" / "python", *options, wheel)
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


def version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_the_wheel_has_all_packages_and_their_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {"mvprune", "mvprune_service", "mvprune_core", "mvprune_workers", "mvprune_migrations"}
    assert {"mvprune/py.typed", "mvprune/v1/job_pb2.pyi", "mvprune/cli/_app.py"} <= names
    assert not [name for name in names if "test" in name or "__pycache__" in name]
    native = [name for name in names if name.endswith(".so")]  # with a compiler
    assert ("-py3-none-any." in wheel.name) == (not native)


def test_the_thin_client_is_thin(bare: Path, wheel: Path) -> None:
    code = (
        "import importlib.util, sys, mvprune\n"
        "heavy = ('torch', 'ray', 'sqlalchemy', 'numpy', 'transformers', 'boto3', 'pyarrow')\n"
        "print([name for name in heavy if importlib.util.find_spec(name)])\n"
        "print([name for name in ('grpc', 'google.protobuf') if name in sys.modules])\n"
        "print(mvprune.Client.__name__, mvprune.JobState.QUEUED, mvprune.__version__)\n"
    )
    done = _run(bare / "python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[]", f"Client QUEUED {version_of(wheel)}"]


def test_mvpctl_works(bare: Path) -> None:
    done = _run(bare / "mvpctl", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "submit" in done.stdout
    done = _run(bare / "mvpctl", "submit", "--help")
    assert done.returncode == 0
    done = _run(bare / "mvpctl", "get", "j1", MVPRUNE_ADDRESS="127.0.0.1:1")
    assert done.returncode == 7
    assert done.stderr.startswith("error: no server answers at 127.0.0.1:1")


def test_a_missing_extra_is_one_line(bare: Path) -> None:
    done = _run(bare / "mvpctl", "server", "start")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: the service needs the package uvloop: pip install 'mvprune[all]'\n"
    done = _run(bare / "mvpctl", "server", "migrate")
    assert (done.returncode, done.stderr) == (2, "error: this needs the package pydantic: pip install 'mvprune[all]'\n")
    done = _run(bare / "python", "-c", "from mvprune import load")
    assert done.stderr.splitlines()[-1].endswith("pip install 'mvprune[runtime]'")


def test_job_files_yaml_and_completion_need_no_extra(bare: Path, tmp_path: Path) -> None:
    done = _run(bare / "mvpctl", "submit", "--print-schema")
    assert json.loads(done.stdout) == json.loads((ROOT / "docs" / "job-file.schema.json").read_text())
    file = tmp_path / "job.yaml"
    file.write_text("model: m\ndensty: 0.1\n")
    done = _run(bare / "mvpctl", "submit", "-f", file)
    error = f"error: {file}:2:1: must be a key of job files, got 'densty'; did you mean density?\n"
    assert (done.returncode, done.stderr) == (2, error)
    assert "context: default" in _run(bare / "mvpctl", "config", "view", "-o", "yaml").stdout
    assert "complete " in _run(bare / "mvpctl", "completion", "bash").stdout


def test_metadata_and_links_of_the_readme_are_for_an_index(tmp_path: Path) -> None:
    address = "https://git.example.com/mvprune"
    built = _run(UV, "build", "--out-dir", tmp_path, ROOT, MVPRUNE_REPOSITORY_URL=address, CXX="no-compiler")
    assert built.returncode == 0, built.stderr
    files = [path for path in tmp_path.iterdir() if path.suffix in (".whl", ".gz")]
    checked = _run(UV.with_name("twine"), "check", "--strict", *files)
    assert (checked.returncode, checked.stdout.count("PASSED")) == (0, 2), checked.stdout
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        readme = archive.read(metadata).decode().split("\n\n", 1)[1]
    links_of_readme = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(links_of_readme) > 20
    assert all(link.startswith("https://") for link in links_of_readme)
    revision = "HEAD" if "dev" in version_of(wheel) else f"v{version_of(wheel)}"
    assert f"{address}/blob/{revision}/docs/quickstart.md" in links_of_readme


def test_the_kernel_of_the_wheel_runs_with_numpy_only(wheel: Path, bare: Path) -> None:
    """Of the extra `runtime`, what the kernel itself needs; `make release-check` installs all of it."""
    if wheel.name.endswith("-any.whl"):
        pytest.skip("there is no C++ compiler")
    installed = _run(UV, "pip", "install", "--python", bare / "python", "numpy>=2.0", "zstandard", "safetensors")
    assert installed.returncode == 0, installed.stderr
    code = (
        "import numpy as np; from mvprune.runtime import kernel\n"
        "assert kernel.load() == '', kernel.load()\n"
        "weight = np.array([[0, 2, 0], [1, 0, 3]], np.float32); x = np.ones((5, 3), np.float32)\n"
        "y = np.empty((5, 2), np.float32)\n"
        "kernel.Packed.pack(weight).linear(x.ctypes.data, y.ctypes.data, 5, threads=2)\n"
        "print(y.tolist() == (x @ weight.T).tolist(), kernel.__file__)\n"
    )
    done = _run(bare / "python", "-c", code)
    assert done.returncode == 0, done.stderr
    answer, file = done.stdout.split()
    assert answer == "True"
    assert Path(file).is_relative_to(bare.parent)
