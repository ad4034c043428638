"""How the native libraries are built: once from the same sources, without a compiler, and for a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from native import build

ROOT = Path(__file__).parents[3]


def test_without_a_compiler_the_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(build.BuildError, match="there is no C\\+\\+ compiler \\(no-such-compiler -m64\\)"):
        build.build(tmp_path / "kernel.so")
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.BuildError, match="false -dumpmachine"):
        build.build(tmp_path / "kernel.so")
    assert list(tmp_path.iterdir()) == []


def test_what_is_built_is_built_again_only_from_other_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler, calls = tmp_path / "c++", tmp_path / "calls"
    compiler.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\nfor file; do :; done\ncase $file in /*) : > "$file";; esac\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    kernel, whole = tmp_path / "kernel.so", tmp_path / "whole.so"

    def compiled(flags: tuple[str, ...] = (), whole: Path | None = None) -> bool:
        calls.write_text("")
        build.build(kernel, flags, whole=whole)
        return " -c " in calls.read_text()

    assert [compiled(), compiled(), compiled(("-O1",)), compiled()] == [True, False, True, True]
    assert [compiled(whole=whole), compiled(whole=whole)] == [True, False]
    assert [compiled(), compiled(whole=whole)] == [True, True]
    whole.unlink()
    assert [compiled(whole=whole), compiled(whole=whole)] == [True, False]
    sources = shutil.copytree(build.HERE, tmp_path / "sources")
    monkeypatch.setattr(build, "HERE", sources)
    (sources / "__pycache__").mkdir(exist_ok=True)
    (sources / "__pycache__" / "build.cpython-399.pyc").write_bytes(b"")
    assert not compiled(whole=whole)
    with (sources / "base" / "json.h").open("a") as header:
        header.write("//")
    assert [compiled(whole=whole), compiled(whole=whole)] == [True, False]


def test_a_wheel_without_a_kernel_is_for_any_platform(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for part in ("client", "service", "workers", "migrations"):
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source / name)
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "build", "--wheel", "--out-dir", tmp_path, source]
    environment = os.environ | {"CXX": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "without its native kernel: there is no C++ compiler (no-such-compiler)" in done.stderr
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".cpp", ".h"))]
