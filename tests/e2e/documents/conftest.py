"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .pages import Place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For the pages of a file."""
    made = Place.make(tmp_path_factory.mktemp("documents"))
    yield made
    made.close()
