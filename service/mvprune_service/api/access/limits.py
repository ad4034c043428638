"""Limits on how often a caller may call: a token bucket for each caller, in memory."""

from __future__ import annotations

from collections import OrderedDict

import grpc

from mvprune_service.api.access.errors import ApiError
from mvprune_service.clock import SECOND, Clock, system_clock

_CALLERS = 10_000  # remembered at most


class RateLimiter:
    """Lets each key spend `rate` units a second, after a `burst`. `unit` is what errors call them."""

    def __init__(self, rate: float, burst: float, clock: Clock = system_clock, unit: str = "calls") -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._unit = unit
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()  # units, and when; the newest last

    def has(self, key: str, units: float = 1.0) -> bool:
        """Whether `take` would not raise."""
        return min(units, self._burst) - self._left(key, self._clock()) <= 1e-9

    def take(self, key: str, units: float = 1.0) -> None:
        """Spends. Raises ApiError (RESOURCE_EXHAUSTED, with the time until there is enough) and spends nothing."""
        now = self._clock()
        left = self._left(key, now)
        self._buckets[key] = (left, now)  # a clock that was set back must not stop the refill
        self._buckets.move_to_end(key)
        if len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)  # the one that has had the most time to refill
        # More units than a bucket holds need a full bucket.
        missing = min(units, self._burst) - left
        if missing > 1e-9:
            rule = f"at most {self._rate:g} a second and {self._burst:g} at once"
            seconds = missing / self._rate
            message = f"{self._unit} must be {rule}; try again later"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED", message, retry_seconds=seconds)
        self._buckets[key] = (left - units, now)

    def _left(self, key: str, now: int) -> float:
        left, then = self._buckets.get(key, (self._burst, now))
        return min(self._burst, left + max(0, now - then) / SECOND * self._rate)
