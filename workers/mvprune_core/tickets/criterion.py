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
    from scipy import stats  # large, and only reports need it

    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(both) - 1))
    loss = of_ticket.mean - of_dense.mean if less_is_better else of_dense.mean - of_ticket.mean
    wins = loss <= of_ticket.deviation
    return Comparison(wins, mean, quantile * statistics.stdev(differences) / math.sqrt(len(both)))
