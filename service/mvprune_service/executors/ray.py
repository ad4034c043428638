"""Ray, as the settings describe it: a cluster that runs already, or a Ray that the server starts."""

from __future__ import annotations

import os
from collections.abc import Callable

from mvprune_service.config import Settings
from mvprune_service.executors.base import Executor, ExecutorNotOpened
from mvprune_service.executors.embedded_ray import EmbeddedRayExecutor
from mvprune_service.executors.ray_jobs import RayExecutor


def from_settings(settings: Settings, start_cancelled: Callable[[], bool]) -> Executor:
    """See open_executor."""
    if not settings.ray_address:
        return EmbeddedRayExecutor.start(settings.home, start_cancelled)
    try:
        return RayExecutor(settings.ray_address, token=os.environ.get("RAY_AUTH_TOKEN"))
    except ValueError as error:
        raise ExecutorNotOpened(f"--ray-{error}") from None
