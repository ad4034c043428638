"""A full disk is found before anything is trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conftest import Tiny

from mvprune_core import CompressionError, Reason
from mvprune_workers.disk import check_disk


@pytest.mark.parametrize(("free", "is_enough"), [(4 << 20, False), (9 << 20, True)])
def test_the_disk_must_have_room_for_the_artifact(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_enough: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    if is_enough:
        check_disk(tmp_path / "new" / "out", tiny.model, 0.5)
        return
    with pytest.raises(CompressionError, match=r"must have 8\.4 MB free for the artifact, got 4\.2 MB in") as raised:
        check_disk(tmp_path / "new" / "out", tiny.model, 0.5)
    assert raised.value.reason is Reason.DISK_FULL
