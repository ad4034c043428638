"""What `make test` leaves to the slow tier, which CI runs with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

_WHERE_POSTGRES_IS_FAST = "tests/unit/service/db/"  # here the databases differ


def first_fast(values: Sequence[Any], fast: int = 1) -> list[Any]:
    """Parameters of a test that is the same for each of them: all but the first `fast` are slow. A tuple is the values
    of several parameters."""
    slow = (value if isinstance(value, tuple) else (value,) for value in values[fast:])
    return [*values[:fast], *(pytest.param(*each, marks=pytest.mark.slow) for each in slow)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of both databases are fast on SQLite only, except those of the queries themselves."""
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters is None or parameters.params.get("new_database") != "postgresql":
            continue
        if not item.nodeid.startswith(_WHERE_POSTGRES_IS_FAST):
            item.add_marker(pytest.mark.slow)
