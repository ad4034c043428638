"""Imports run one way, and the thin parts stay thin."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "transformers", "datasets", "ray"}
OURS = {"mvprune", "mvprune_core", "mvprune_service", "mvprune_workers", "mvprune_migrations"}
FOLDERS = {
    "mvprune": "client/mvprune",
    "mvprune_core": "workers/mvprune_core",
    "mvprune_service": "service/mvprune_service",
    "mvprune_workers": "workers/mvprune_workers",
    "mvprune_migrations": "migrations/mvprune_migrations",
}
# What each package may import of the others: names, with everything below them.
ALLOWED = {
    "mvprune": set(),  # commands of the other packages are entry points
    "mvprune_core": {
        *("mvprune.common", "mvprune.sources", "mvprune.data", "mvprune.artifact", "mvprune.runtime"),
        "mvprune.serving.turns",
        "mvprune.serving.writing",  # what the server asks of a model
        *(
            f"mvprune.spec.{one}"
            for one in (
                *("rules", "method_choice", "parameter", "parameters", "patterns", "run_options", "structures"),
                *("kept", "problem", "selected_layers"),
            )
        ),
    },
    "mvprune_service": {"mvprune", "mvprune_migrations"},
    "mvprune_workers": {"mvprune", "mvprune_core", "mvprune_service.stores"},
    "mvprune_migrations": {"mvprune_service.db", "mvprune.v1"},
}

# The packages of the client: each may import those before it.
LAYERS = (
    "v1",
    "common",
    "sources",
    "data",
    "spec",
    "artifact",
    "client",
    "sweep",
    "runtime",
    "infer",
    "serving",
    "export",
    "publish",
    "hf",
    "console",
    "cli",
    "mcp",
)

# The rooms of the core: each may import those before it. What is beside them may import all.
ROOMS = ("base", "tasks", "models", "pruning", "methods", "training", "storing", "runs")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", FOLDERS)
def test_imports_run_one_way(package: str) -> None:
    files = list((ROOT / FOLDERS[package]).rglob("*.py"))
    assert files
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in imports(path)
        if (
            (top := name.partition(".")[0]) in OURS - {package}
            and not any(name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED[package])
        )
        or (package == "mvprune_core" and top in {"ray", "grpc", "google"})
        or (package == "mvprune_service" and top in HEAVY - {"ray"})
    }
    assert wrong == set()


@pytest.mark.parametrize(("package", "parts"), [("mvprune", LAYERS), ("mvprune_core", ROOMS)])
def test_parts_of_a_package_import_those_before_them(package: str, parts: Sequence[str]) -> None:
    """What is imported for type checking counts too."""
    folder = ROOT / FOLDERS[package]
    assert {path.name for path in folder.iterdir() if (path / "__init__.py").exists()} == set(parts)
    beside = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for position, part in enumerate(parts)
        for path in (folder / part).rglob("*.py")
        for name in imports(path)
        if name.startswith(f"{package}.") and name.split(".")[1] in beside.union(parts[position + 1 :])
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("package", "rooms"),
    [("api", ("access", "messages", "checks", "")), ("db", ("tables", "engine", ""))],
)
def test_rooms_of_the_service_import_those_before_them(package: str, rooms: tuple[str, ...]) -> None:
    folder = ROOT / FOLDERS["mvprune_service"] / package
    for position, room in enumerate(rooms):
        later = tuple(f"mvprune_service.{package}.{path.stem}" for path in folder.glob("*.py")) if room else ()
        later += tuple(f"mvprune_service.{package}.{other}." for other in rooms[position + 1 :] if other)
        for path in (folder / room).rglob("*.py") if room else ():
            assert not [name for name in imports(path) if f"{name}.".startswith(later)], path


def test_no_modules_of_the_command_line_import_each_other() -> None:
    """Imports in functions and for types count too."""
    folder = ROOT / "client/mvprune/cli"
    paths = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if path.stem != "__init__"]
    modules = {".".join(("mvprune.cli", *path.parts)): folder / f"{path}.py" for path in paths}
    sorter = TopologicalSorter(
        {
            module: {known for name in imports(path) for known in modules if f"{name}.".startswith(f"{known}.")}
            for module, path in modules.items()
        }
    )
    assert set(sorter.static_order()) == set(modules)  # raises CycleError


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("mvprune", HEAVY | {"grpc", "numpy", "google.protobuf", "rich", "typer"}),
        ("mvprune.cli", HEAVY | {"grpc", "numpy", "sqlalchemy", "mvprune.client.models"}),
        ("mvprune_service.assembly.running", HEAVY),
        ("mvprune_service.commands", HEAVY | {"grpc", "numpy", "sqlalchemy", "pydantic"}),
        ("mvprune_workers.commands.evaluate", HEAVY | {"grpc", "numpy"}),
        ("mvprune_workers.commands.serve", HEAVY | {"grpc", "numpy", "uvicorn"}),
        ("mvprune_workers.__main__", HEAVY | {"sqlalchemy", "grpc", "numpy"}),
        pytest.param("mvprune_core", {"sklearn", "scipy.stats", "google.protobuf"}, marks=pytest.mark.slow),
    ],
)
def test_importing_stays_light(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({absent!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == []
