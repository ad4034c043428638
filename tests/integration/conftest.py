"""A store of each kind, and a service with stubs to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from mvprune_service.assembly.service import Service
from mvprune_service.executors.processes import kill_marked
from mvprune_service.stores.base import BlobStore

from ..conftest import Tiny
from .plane import Plane, local_settings


def keys_in(store: BlobStore, prefix: str) -> list[str]:
    return sorted(entry.key for entry in store.list(prefix))


@pytest.fixture
async def plane(tmp_path: Path, tiny: Tiny) -> AsyncIterator[Plane]:
    settings = local_settings(tmp_path, tiny)
    async with Service(settings) as service, aclosing(Plane(service, tiny)) as plane:
        yield plane
    kill_marked("MVPRUNE_SCRATCH", str(settings.home / "scratch"))  # workers outlive their server
