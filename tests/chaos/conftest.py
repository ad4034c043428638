"""`make chaos` runs all of this folder. A plain `pytest` runs the smoke test alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .counts import COUNTS, summary

ROUNDS = float(os.environ.get("MVPRUNE_CHAOS_ROUNDS", "1"))
_FOLDER = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """All but the smoke test is left out unless it is asked for by name."""
    named = any("chaos" in str(argument) for argument in config.invocation_params.args)
    inside = collection_path.parent == _FOLDER and collection_path.name.startswith("test_")
    return True if inside and not named and collection_path.name != "test_smoke.py" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the counts."""
    if COUNTS:
        terminalreporter.write_line(f"chaos: {summary()}")
