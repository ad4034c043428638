"""The npm package with a compiled library, artifacts, and programs that run it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.unit.infer.conftest import tokenizer, write_artifact

from native import build

__all__ = ["tokenizer"]


def program(*names: str) -> str:
    """The first of these programs that is here; the test is skipped without one."""
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"{' or '.join(names)} is not installed")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the npm package's folder, with the library compiled from the sources."""
    program("node")
    folder = tmp_path_factory.mktemp("web") / "package"
    shutil.copytree(build.WEB, folder, ignore=shutil.ignore_patterns("*.wasm", ".build-*"))
    try:
        build.zig()
    except build.BuildError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        # What the compiler made for an earlier run, its C++ library above all, is taken from there.
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(Path.home() / ".cache" / "zig"))
        build.build_web(folder)
    return folder


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Callable[[str], Path]:
    """The folder of an artifact for a task."""
    root = tmp_path_factory.mktemp("artifacts")
    return cache(lambda task: write_artifact(root / task, task, tokenizer))


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
