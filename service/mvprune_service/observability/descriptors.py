"""File descriptors of this process: each connection and each open file takes one, and without one nothing works."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

from mvprune_service.observability import metrics
from mvprune_service.observability.probes import Problems

log = logging.getLogger(__name__)

_WANTED = 65_536  # more than this server can make use of
_NEAR = 0.8  # of the limit
_MOST_CONNECTIONS = 10_000  # of a port: each takes memory too
_FOLDER = Path("/dev/fd")  # on Linux a link into /proc
_PART = "open files"


class TooManyDescriptors(Exception):
    """Nearly as many descriptors are open as may be."""


def raise_limit() -> None:
    """Raises the limit of this process as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # macOS has a further limit
            log.warning("the limit of %d open files was not raised to %d: %s", soft, wanted, error)


def limit() -> int:
    """How many this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _WANTED if soft == resource.RLIM_INFINITY else soft


def connections() -> int:
    """How many connections each of the two ports may take: a quarter of the descriptors is left for the database, the
    store, the logs and what is being started."""
    return max(16, min(limit() * 3 // 8, _MOST_CONNECTIONS))


class DescriptorWatch:
    """Says when nearly all descriptors are in use: in the log, among the problems and as a metric."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._is_near = False

    async def step(self) -> None:
        """Counts them."""
        allowed = limit()
        used = _open(allowed)
        metrics.descriptor_usage.set(used / allowed)
        is_near = used >= _NEAR * allowed
        if is_near:
            text = f"{used:,} of {allowed:,} file descriptors are in use: raise the limit (ulimit -n, LimitNOFILE)"
            self._problems.report(_PART, TooManyDescriptors(text))
            if not self._is_near:
                log.warning("%s", text)
        else:
            self._problems.clear(_PART)
        self._is_near = is_near


def _open(allowed: int) -> int:
    try:
        return len(list(_FOLDER.iterdir())) - 1  # without the one that lists
    except OSError:  # there is none left to list with
        return allowed
