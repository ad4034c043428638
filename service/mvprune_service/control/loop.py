"""Runs a step again and again: at once after a change, else after an interval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mvprune_service.changes import Changes, wait_for_change

log = logging.getLogger(__name__)

_CALM_SECONDS = 0.05  # changes that come in a burst share one step


async def run_loop(name: str, step: Callable[[], Awaitable[None]], changes: Changes, interval: float) -> None:
    """Runs `step` until cancelled. A step that raises is logged, and tried again after the interval."""
    with changes.of_all() as changed:
        while True:
            try:
                await step()
            except Exception:
                log.exception("%s failed; trying again in %g s", name, interval)
                changed.clear()
            await asyncio.sleep(_CALM_SECONDS)
            await wait_for_change(changed, interval)
