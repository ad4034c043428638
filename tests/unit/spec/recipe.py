"""Pages of contributing/ whose steps are done in a copy of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
COPIED = ("client", "proto", "scripts", "docs", "workers", "service", "migrations")


class Copy(NamedTuple):
    """A copy of the repository."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Copy:
        """Skips the test where `make proto` has no environment."""
        if not (ROOT / ".gen" / "bin" / "python").exists():
            pytest.skip("needs the environment of `make proto`")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "images"))
        for name in ("Makefile", "pyproject.toml", "hatch_build.py"):
            shutil.copy2(ROOT / name, folder)
        for name in (".venv", ".gen"):
            (folder / name).symlink_to(ROOT / name)
        return cls(folder)

    def insert(self, file: str, after: str, text: str) -> None:
        """Adds lines before the end of the block that a line opens."""
        path = self.folder / file
        head, line, tail = path.read_text(encoding="utf-8").partition(after)
        body, end, rest = tail.partition("\n}\n" if path.suffix == ".proto" else "\n\n    def ")
        assert line
        assert end
        path.write_text(f"{head}{line}{body}\n{text.rstrip()}{end}{rest}", encoding="utf-8")

    def add(self, file: str, after: str, text: str) -> None:
        """Adds lines after the line that begins so."""
        path = self.folder / file
        head, begin, tail = path.read_text(encoding="utf-8").partition(after)
        end = "" if begin.endswith("\n") else tail[: tail.index("\n") + 1]
        assert begin
        path.write_text(f"{head}{begin}{end}{text}{tail.removeprefix(end)}", encoding="utf-8")

    def write(self, file: str, text: str) -> None:
        """Makes a file."""
        (self.folder / file).write_text(text, encoding="utf-8")

    def make_proto(self) -> None:
        """The environment is not the copy's: it is left as it is."""
        make = ["make", "--assume-old=setup", "--assume-old=.venv/.stamp", "proto"]
        subprocess.run(make, cwd=self.folder, env=self._env, check=True, capture_output=True)

    def run(self, code: str) -> str:
        """What Python prints there."""
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder, env=self._env, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shows(self, text: str, *files: str) -> None:
        """Files that have a name, in whatever spelling."""
        for file in files:
            assert text in (self.folder / file).read_text(encoding="utf-8").replace("-", "_"), file

    @property
    def _env(self) -> dict[str, str]:
        path = ":".join(str(self.folder / name) for name in ("client", "workers", "service", "migrations"))
        return {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(self.folder)}


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in a language."""
    text = (ROOT / "contributing" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def mvpctl(*argv: str) -> str:
    """Code that runs a command."""
    return f"from mvprune.cli import main; main({list(argv)!r})"
