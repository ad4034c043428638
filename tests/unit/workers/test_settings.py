"""The environment of the trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mvprune_workers.settings import bytecode_environment

PACKAGE = "mvprune_heavy"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package without bytecode."""
    folder = tmp_path / "packages" / PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import part")
    (folder / "part.py").write_text("")
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_bytecode_that_may_not_be_beside_its_package_is_kept_in_scratch(package: Path, tmp_path: Path) -> None:
    environ = {"PYTHONDONTWRITEBYTECODE": "1"}
    given = bytecode_environment(environ, tmp_path / "bytecode", PACKAGE)
    env = {**os.environ, **environ, **given, "PYTHONPATH": str(package.parent)}
    subprocess.run([sys.executable, "-c", f"import {PACKAGE}"], env=env, check=True)
    assert {path.name.partition(".")[0] for path in (tmp_path / "bytecode").rglob(f"{PACKAGE}/*.pyc")} == {
        "__init__",
        "part",
    }
    assert not [*package.rglob("*.pyc")]


def test_bytecode_is_beside_its_package_where_it_can_be(package: Path, tmp_path: Path) -> None:
    assert bytecode_environment({}, tmp_path, PACKAGE) == {}
    environ = {"PYTHONDONTWRITEBYTECODE": "1"}
    assert bytecode_environment(environ | {"PYTHONPYCACHEPREFIX": "/elsewhere"}, tmp_path, PACKAGE) == {}
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    }
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], env=env, check=True)
    assert bytecode_environment(environ, tmp_path, PACKAGE) == {}
    assert bytecode_environment(environ, tmp_path, "mvprune_no_such_package") == {}
