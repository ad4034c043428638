"""Ray, as the settings describe it: a cluster that runs already, or a Ray that the server starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mvprune.common.files import read_secret
from mvprune_service.config import Settings
from mvprune_service.executors.base import Executor, ExecutorNotOpened
from mvprune_service.executors.embedded_ray import EmbeddedRayExecutor
from mvprune_service.executors.ray_jobs import NodeType, RayExecutor
from mvprune_service.executors.ray_wheel import BadWheel, RayWheel


def from_settings(settings: Settings, start_cancelled: Callable[[], bool]) -> Executor:
    """See open_executor."""
    if not settings.ray_address:
        if settings.ray_node_types:
            raise ExecutorNotOpened("--ray-node-types needs --ray-address: a Ray that the server starts has one node")
        if settings.ray_wheel:
            raise ExecutorNotOpened("--ray-wheel needs --ray-address: a Ray that the server starts has its packages")
        return EmbeddedRayExecutor.start(settings.home, start_cancelled)
    return cluster(settings)


def cluster(settings: Settings) -> RayExecutor:
    """The executor on the cluster that the settings name. Raises ExecutorNotOpened."""
    try:
        node_types = tuple(map(NodeType.parse, settings.ray_node_types))
        wheel = None if settings.ray_wheel is None else RayWheel.read(settings.ray_wheel)
        return RayExecutor(settings.ray_address, token=_token(), node_types=node_types, wheel=wheel)
    except BadWheel as error:
        raise ExecutorNotOpened(f"--ray-wheel {error}") from None
    except ValueError as error:
        raise ExecutorNotOpened(f"--ray-{error}") from None


def _token() -> str | None:
    """The token of a cluster: RAY_AUTH_TOKEN, or the content of the file RAY_AUTH_TOKEN_PATH, as for Ray's own
    programs. Raises ExecutorNotOpened."""
    token, path = os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not path:
        return token
    if token:
        raise ExecutorNotOpened(
            "RAY_AUTH_TOKEN_PATH must not be set beside RAY_AUTH_TOKEN, got both; unset one of the two variables"
        )
    try:
        return read_secret(Path(path))
    except ValueError as error:
        raise ExecutorNotOpened(f"RAY_AUTH_TOKEN_PATH {error}") from None
