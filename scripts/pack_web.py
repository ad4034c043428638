"""Packs client/web, with the WebAssembly files that are built, as the npm package of this version.

python scripts/pack_web.py FOLDER
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "client" / "web"


def npm_version(python: str) -> str:
    """A version of the Python package in npm's form: 1.2.0 as it is, 1.2.0.dev3+gab12 as 1.2.0-dev3.

    Raises:
        ValueError: it does not begin with three numbers.
    """
    found = re.match(r"(\d+\.\d+\.\d+)\.?((?:a|b|rc|dev)\d+)?", python)
    if not found:
        raise ValueError(f"the version must begin with three numbers, got {python}")
    return "-".join(part for part in found.groups() if part)


def main(folder: Path) -> None:
    """Writes the package into a folder."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as staged:
        copy = Path(staged) / "package"
        shutil.copytree(PACKAGE, copy)
        description = json.loads((copy / "package.json").read_text())
        description["version"] = npm_version(version("mvprune"))
        (copy / "package.json").write_text(json.dumps(description, indent=2) + "\n")
        subprocess.run(["npm", "pack", "--pack-destination", folder.resolve()], cwd=copy, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
