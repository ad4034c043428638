"""The equipment of a cluster's node, as one line of JSON. `mvpctl server check-cluster` runs this file's text there.

It starts with the standard library only: what it looks for may be missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import subprocess
from importlib.metadata import PackageNotFoundError, version

MARK = "mvprune-node: "
_PACKAGES = ("torch", "ray", "mvprune")
_SECONDS = 10.0  # of each question


def _version(package: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def _gpus() -> list[str]:
    """Models of the GPUs, as NVIDIA's driver names them."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS, check=True)
        return found.stdout.split("\n")[:-1]
    return []


def _store(url: str) -> str:
    """Why the store cannot be read; "" if it can."""
    try:
        from mvprune_service.stores import open_store

        open_store(url, create=False).size("check-cluster")
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def _server(target: str) -> str:
    """Why the workers' port of the server does not accept a connection; "" if it does."""
    host, _, port = target.rpartition("/")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS):
            return ""
    except (OSError, ValueError) as error:
        return f"{target}: {error}"[:300]


if __name__ == "__main__":
    found = {
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "gpu_names": _gpus(),
        "store": _store(os.environ["MVPRUNE_STORE"]),
        "server": _server(os.environ["MVPRUNE_WORKER_TARGET"]),
    }
    print(MARK + json.dumps(found), flush=True)
