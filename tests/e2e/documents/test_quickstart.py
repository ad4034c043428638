"""The quickstart, whose server trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import QUICKSTART, read


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", QUICKSTART)
def test_every_block_runs_and_prints_what_is_shown(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(page, None, tmp_path, monkeypatch)
