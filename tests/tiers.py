"""What `make test` leaves to the slow tier, which CI runs with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

_WHERE_POSTGRES_IS_FAST = "tests/unit/service/db/test_lifecycle.py"  # what every job needs


def first_fast(values: Sequence[Any], fast: int = 1) -> list[Any]:
    """Parameters of a test that is the same for each of them: all but the first `fast` are slow. A tuple is the values
    of several parameters."""
    slow = (value if isinstance(value, tuple) else (value,) for value in values[fast:])
    return [*values[:fast], *(pytest.param(*each, marks=pytest.mark.slow) for each in slow)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need PostgreSQL are slow, except a few: its server takes as much of a core as they do."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        on_postgres = parameters is not None and parameters.params.get("new_database") == "postgresql"
        needs = on_postgres or "postgres" in getattr(item, "fixturenames", ())
        if needs and not item.nodeid.startswith(_WHERE_POSTGRES_IS_FAST):
            item.add_marker(pytest.mark.slow)
