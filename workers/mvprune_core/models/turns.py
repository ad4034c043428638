"""A thread's turns with a model of torch, with random numbers of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mvprune.serving.turns import Turns


class Turn:
    """One thread's turns."""

    def __init__(self, turns: Turns, seed: int) -> None:
        self._turns = turns
        self._random = torch.Generator().manual_seed(seed).get_state()
        self._before = self._random

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A context in which this thread computes. torch's random numbers are those of the seed in it, whoever
        computes in between, and afterwards go on as before."""
        self._take()
        try:
            yield
        finally:
            self._leave()

    def offer(self) -> None:
        """Lets those compute that wait, one step each."""
        if self._turns.is_wanted:
            self._leave()
            self._take()

    def _take(self) -> None:
        self._turns.take()
        self._before = torch.get_rng_state()
        torch.set_rng_state(self._random)

    def _leave(self) -> None:
        self._random = torch.get_rng_state()
        torch.set_rng_state(self._before)
        self._turns.leave()
