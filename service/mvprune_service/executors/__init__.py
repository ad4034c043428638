"""Where workers run: on Ray, or as plain processes.

Each executor that the setting `executor` can choose is a module of this package with a function `from_settings`. Its
name in `ExecutorName` is the module's.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from mvprune_service.executors.base import Executor

if TYPE_CHECKING:
    from mvprune_service.config import Settings

ExecutorName = Literal["ray", "local"]


def open_executor(settings: Settings, start_cancelled: Callable[[], bool] = lambda: False) -> Executor:
    """Opens the executor that the settings choose. `close` releases it. Blocks: starting Ray takes about 10 s.

    Args:
        start_cancelled: returns True once the server's start has been cancelled.

    Raises:
        ExecutorNotOpened: it cannot be opened; the text says why.
        StartCancelled: the start was cancelled meanwhile. Nothing is left running.
    """
    executor: Executor = import_module(f"{__name__}.{settings.executor}").from_settings(settings, start_cancelled)
    return executor
