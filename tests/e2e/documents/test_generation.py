"""The page on models that write text, whose server trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import GENERATION, read


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", GENERATION)
def test_every_block_runs_and_prints_what_is_shown(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(page, None, tmp_path, monkeypatch)
