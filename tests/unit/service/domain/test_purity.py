"""The domain is pure: it imports no database, no I/O and no clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mvprune.spec import gate
from mvprune.sweep.tickets import study
from mvprune_service import domain

ALLOWED = {
    "__future__",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "bisect",
    "math",
    "operator",
    "signal",  # names of signals
    "types",
    "typing",
    "mvprune.common.metrics",  # constants
    "mvprune.data.phases",  # constants, and their order
    *(f"mvprune.spec.{one}" for one in ("cells", "given", "method_choice", "parameter")),  # messages and their rules
    "mvprune.spec.patterns",  # what a pattern is
    "mvprune.data.run_length",  # arithmetic
    "mvprune.data.tasks",  # what a task is
    *("mvprune.sources.schemes", "mvprune.sources.known_models"),  # constants
    "mvprune.spec.gate",  # checked as well
    "mvprune.sweep.tickets.study",  # checked as well
    "mvprune.v1",
    "mvprune_service.executors.base",  # what an executor reports: types without behaviour
}


_PATHS = [*sorted(Path(domain.__path__[0]).glob("*.py")), Path(gate.__file__), Path(study.__file__)]


@pytest.mark.parametrize("path", _PATHS, ids=lambda path: path.stem)
def test_a_module_of_the_domain_imports_nothing_that_acts(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= ALLOWED
        elif isinstance(node, ast.ImportFrom):
            names = {name.name for name in node.names}
            is_own = str(node.module).startswith("mvprune_service.domain")
            is_constant = node.module == "mvprune_service.clock" and names == {"SECOND"}
            assert is_own or is_constant or node.module in ALLOWED, node.module
