"""The garbage collector is as it was after a context without it."""

from __future__ import annotations

import gc

from mvprune.common.collection import without_collection


def test_nothing_is_collected_inside() -> None:
    assert gc.isenabled()
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
