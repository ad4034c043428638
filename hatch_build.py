"""Hatchling's hook: builds the native kernel into wheels and editable installs where there is a C++ compiler."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = "client/mvprune/runtime/_native"


class KernelHook(BuildHookInterface):
    """Without a compiler the package is pure Python: its sparse runtime then uses torch, and says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the library beside its sources, and names the platform in the wheel that holds it."""
        native = runpy.run_path(str(Path(self.root) / NATIVE / "build.py"))
        try:
            native["build"]()
        except native["BuildError"] as error:
            native["LIBRARY"].unlink(missing_ok=True)
            self.app.display_warning(f"mvprune is installed without its native kernel: {error}")
            return
        build_data["artifacts"].append(f"{NATIVE}/{native['LIBRARY'].name}")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
