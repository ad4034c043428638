"""All other pages. Their jobs train nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import OTHERS, Place, read


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", OTHERS)
def test_every_block_runs_and_prints_what_is_shown(
    place: Place, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(page, place, tmp_path, monkeypatch)
