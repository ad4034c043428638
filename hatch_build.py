"""Hatchling's hooks: the native kernel of wheels and editable installs, and the README on a package index."""

from __future__ import annotations

import os
import re
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

BUILD = "client/native/build.py"
_RELATIVE_LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https://)([^)]+)\)")


class ReadmeHook(MetadataHookInterface):
    """The README of the package's metadata, with absolute links to the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Links lead to the address in MVPRUNE_REPOSITORY_URL. Without it they become plain text.

        They lead to the files of the release, or, in a version between releases, to the newest ones.
        """
        repository = os.environ.get("MVPRUNE_REPOSITORY_URL", "").rstrip("/")
        version = metadata["version"]
        revision = f"v{version}" if re.fullmatch(r"[\d.]+((a|b|rc)\d+)?", version) else "HEAD"

        def absolute(link: re.Match[str]) -> str:
            mark, text, path = link.groups()
            if not repository:
                return text
            kind = "raw" if mark else "blob"
            return f"{mark}[{text}]({repository}/{kind}/{revision}/{path})"

        readme = _RELATIVE_LINK.sub(absolute, (Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        if repository:
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/{revision}/docs/quickstart.md",
                "Changelog": f"{repository}/blob/{revision}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }


class KernelHook(BuildHookInterface):
    """Without a compiler the package is pure Python: its sparse runtime then uses torch, and says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the libraries where the package loads them, and names the platform in the wheel that holds them."""
        native = runpy.run_path(str(Path(self.root) / BUILD))
        files = [native["LIBRARY"], native["WHOLE"], native["WHOLE"].with_name(native["HEADER"].name)]
        try:
            native["build"](whole=native["WHOLE"])
        except native["BuildError"] as error:
            for file in files:
                file.unlink(missing_ok=True)
            self.app.display_warning(f"mvprune is installed without its native kernel: {error}")
            return
        build_data["artifacts"] += [file.relative_to(self.root).as_posix() for file in files]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(native['architecture'](native['compiler']()))}"


def _platform(architecture: str) -> str:
    """The tag of this system, with the architecture that the compiler builds for: it may be that of another machine."""
    if sys.platform == "linux":
        return f"linux_{architecture}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
