"""Whether a ticket wins, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A metric over seeds.

    Attributes:
        mean: over the seeds.
        deviation: sample standard deviation; None with one seed.
        count: of seeds.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Mapping[int, float]) -> Summary:
        """The summary of values by seed, at least one."""
        every = list(values.values())
        return cls(statistics.fmean(every), statistics.stdev(every) if len(every) > 1 else None, len(every))


@dataclass(frozen=True)
class Comparison:
    """A ticket beside the dense model.

    Attributes:
        wins: whether the ticket is a winning one; None with one seed.
        difference: mean of ticket − dense over the seeds that both have.
        interval: the half-width of its confidence interval, see CONFIDENCE; None with one seed.
    """

    wins: bool | None
    difference: float
    interval: float | None


def compare(dense: Mapping[int, float], ticket: Mapping[int, float], *, less_is_better: bool = False) -> Comparison:
    """Compares a ticket with the dense model, by the seeds that both have.

    A ticket wins if the dense mean is within one standard deviation of the ticket's mean (Chen et al. 2020,
    https://arxiv.org/abs/2007.12223, section 3.2), or if the ticket's mean is the better one. The interval is Student's
    for the differences of the pairs: both runs of a pair have the same batches and the same initial head.

    Args:
        dense: the metric of the dense model, by seed.
        ticket: that of the ticket.
        less_is_better: whether small values are good.

    Raises:
        ValueError: no seed is in both.
    """
    both = sorted(dense.keys() & ticket.keys())
    if not both:
        raise ValueError(f"dense and ticket must have a seed in common, got {sorted(dense)} and {sorted(ticket)}")
    of_dense, of_ticket = (Summary.of({seed: values[seed] for seed in both}) for values in (dense, ticket))
    differences = [ticket[seed] - dense[seed] for seed in both]
    mean = statistics.fmean(differences)
    if of_ticket.deviation is None:
        return Comparison(None, mean, None)
    loss = of_ticket.mean - of_dense.mean if less_is_better else of_dense.mean - of_ticket.mean
    wins = loss <= of_ticket.deviation
    half = student(len(both) - 1) * statistics.stdev(differences) / math.sqrt(len(both))
    return Comparison(wins, mean, half)


def student(freedom: int) -> float:
    """The t with P(|T| ≤ t) = CONFIDENCE for so many degrees of freedom.

    The thin client, which prints it, has no scipy. The probability is the finite sum of Abramowitz and Stegun 26.7.3
    and 26.7.4 over powers of cos θ, with θ = atan(t / √freedom); θ is found by bisection.
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, freedom) < CONFIDENCE else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan(angle))."""
    is_odd = freedom % 2
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (cosine if is_odd else 1.0), 0.0
    for power in range(is_odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
