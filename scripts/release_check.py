"""Checks of a release that run on one machine: `make release-check`.

Builds the distributions into a folder of its own, and checks their tags, the glibc they need, their metadata, the
README's links, an installation with each extra, the locked versions and the workflows. Needs a package index.
"""

from __future__ import annotations

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
REPOSITORY = "https://git.example.com/mvprune"
NEWEST_GLIBC = (2, 28)

# What is run in an environment that has only the wheel and the packages of the extra.
USES = {
    "": "import mvprune; mvprune.Client; import mvprune.cli",
    "runtime": "from mvprune import load; from mvprune.runtime import kernel; assert not kernel.load(), kernel.load()",
    "service": "import mvprune_service.commands, mvprune_service.assembly.components",
    "worker": "import mvprune_core; mvprune_core.compress; import mvprune_workers.trainer",
    "export": "import mvprune.export, onnx, onnxruntime, onnxscript, scipy",
    "serve": "import mvprune.serving.app, mvprune.serving.server",
    "mlflow": "import mlflow",
    "hub": "import huggingface_hub",
    "mcp": "import mvprune.mcp.server, mvprune.mcp.http",
    "tensorboard": "import tensorboardX",
    "ray": "import ray",
    "otel": "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http",
    "postgres": "import psycopg",
    "all": "import mvprune_service.server, mvprune_core",
}


class CheckFailed(Exception):
    """A check of the release: the text says which."""


def main() -> int:
    """Runs the checks one after the other. Returns 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", nargs="*", choices=[*USES], default=[*USES], help="installs only these")
    parser.add_argument("--dist", type=Path, help="checks these distributions; without it they are built")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mvprune-release-") as scratch:
        folder = Path(scratch)
        dist = (args.dist or built(folder / "dist")).resolve()
        checks: list[tuple[str, Callable[[], str]]] = [
            ("wheels", lambda: wheels(dist)),
            ("metadata", lambda: metadata(dist)),
            ("workflows", workflows),
            ("locks", lambda: locks(folder)),
            *(
                (f"install {extra or 'thin'}", lambda extra=extra: installed(dist, extra, folder))
                for extra in args.extras
            ),
        ]
        failed = 0
        for name, check in checks:
            try:
                print(f"{name}: {check()}", flush=True)
            except CheckFailed as error:
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    return int(failed > 0)


def run(*command: str | Path, **env: str) -> str:
    """What a command prints.

    Raises:
        CheckFailed: it fails.
    """
    environment = {**os.environ, "MVPRUNE_REPOSITORY_URL": REPOSITORY, **env}
    if links := os.environ.get("PIP_FIND_LINKS"):
        environment.setdefault("UV_FIND_LINKS", links)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    if done.returncode:
        raise CheckFailed(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def built(dist: Path) -> Path:
    """The distributions, built."""
    print(run(ROOT / "scripts" / "build_dist.sh", dist, BIN=os.path.relpath(BIN, ROOT)), end="")
    return dist


def wheels(dist: Path) -> str:
    """Three wheels, of which two have a kernel that loads with a glibc as old as NEWEST_GLIBC."""
    lines = []
    for pattern in ("*manylinux*_x86_64.whl", "*manylinux*_aarch64.whl", "*-py3-none-any.whl"):
        found = list(dist.glob(pattern))
        if len(found) != 1:
            raise CheckFailed(f"{dist} must have one {pattern}, got {len(found)}")
        (wheel,) = found
        names = zipfile.ZipFile(wheel).namelist()
        if any(name.endswith(".so") for name in names) != ("manylinux" in wheel.name):
            raise CheckFailed(f"{wheel.name} has the kernel of another wheel")
        lines.append(f"\n  {wheel.name}: {wheel.stat().st_size:,} bytes")
        if "manylinux" in wheel.name:
            shown = run(BIN / "auditwheel", "show", wheel)
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", shown)
            newest = max((int(major), int(minor)) for major, minor in versions)
            if newest > NEWEST_GLIBC:
                raise CheckFailed(f"{wheel.name} asks for glibc {newest}, newer than {NEWEST_GLIBC}\n{shown}")
            lines[-1] += f", glibc {newest[0]}.{newest[1]} or newer"
    return "".join(lines)


def metadata(dist: Path) -> str:
    """The index accepts it, and each link of the README is absolute and leads to a file of this tree."""
    run(BIN / "twine", "check", "--strict", *dist.iterdir())
    (wheel,) = dist.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = email.message_from_bytes(archive.read(name))
    urls = dict(url.split(", ", 1) for url in text.get_all("Project-URL", []))
    if "Repository" not in urls:
        raise CheckFailed("the README must have absolute links, got none; set MVPRUNE_REPOSITORY_URL for the build")
    links = re.findall(r"\]\(([^)]+)\)", str(text.get_payload()))
    for link in links:
        path = re.fullmatch(rf"{re.escape(urls['Repository'])}/(?:blob|raw)/[^/]+/([^#]+)(?:#.*)?", link)
        if not link.startswith("https://") or (path and not (ROOT / path[1]).exists()):
            raise CheckFailed(f"the README's link {link} leads nowhere")
    return f"version {text['Version']}, {len(links)} links"


def workflows() -> str:
    """The files for CI are valid, and zizmor finds no weakness."""
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    run(BIN / "zizmor", "--offline", "--no-progress", *files)
    return f"{len(files)} files"


def locks(folder: Path) -> str:
    """pyproject.toml still gives the locked versions."""
    before = {path.name: path.read_text() for path in (ROOT / "locks").glob("*.txt")}
    try:
        run(ROOT / "scripts" / "lock.sh", BIN=os.path.relpath(BIN, ROOT), UV_FIND_LINKS="", PIP_FIND_LINKS="")
        stale = [name for name, text in before.items() if (ROOT / "locks" / name).read_text() != text]
    finally:
        for name, text in before.items():
            (ROOT / "locks" / name).write_text(text)
    if stale:
        raise CheckFailed(f"{', '.join(stale)} must be what pyproject.toml gives; run `make lock`")
    return f"{len(before)} files"


def installed(dist: Path, extra: str, folder: Path) -> str:
    """The wheel of this machine with an extra, installed and used. Tells the size as `du` does, without
    compiled bytecode."""
    environment = folder / "try"
    machine = os.uname().machine
    (wheel,) = dist.glob(f"*manylinux*_{machine}.whl")
    try:
        run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, environment)
        wanted = f"mvprune[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        run(BIN / "uv", "pip", "install", "--quiet", "--python", environment / "bin" / "python", wanted)
        size = sum(512 * path.lstat().st_blocks for path in (environment, *environment.rglob("*")))
        run(environment / "bin" / "python", "-I", "-c", USES[extra])
        version = run(environment / "bin" / "mvpctl", "--version").strip()
        return f"{version}, {size / 1e6:,.0f} MB"
    finally:
        shutil.rmtree(environment, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
