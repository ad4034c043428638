"""How often workers report, so that their number does not overload the database."""

from __future__ import annotations

_FEW = 100  # heartbeats a second, as long as the interval stays within _SHORT
_MANY = 250  # heartbeats a second beyond that: a server has one core, and starts jobs too
_SHORT, LONGEST = 10.0, 60.0  # seconds
_LOST = 5  # intervals without a heartbeat


def interval_seconds(workers: int, least: float) -> float:
    """Seconds between the heartbeats of one worker: 1 s for 100 workers, 10 s for 1,000 to 2,500, then up to 60 s.

    Args:
        workers: the number of all workers of all servers.
        least: what the settings ask for.
    """
    return max(least, min(max(min(workers / _FEW, _SHORT), workers / _MANY), LONGEST))


def lease_seconds(interval: float, least_interval: float, least: float) -> float:
    """Seconds without a heartbeat after which a worker loses its lease: five intervals, if that is more than the
    settings ask for and the interval is not the one of the settings."""
    return max(least, _LOST * interval) if interval > least_interval else least
