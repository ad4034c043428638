"""Threads that compute with one model in turns, each with random numbers of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Turns:
    """One thread computes at a time; those that wait come in the order in which they asked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given_out = self._current = 0

    @contextmanager
    def turn(self, seed: int) -> Iterator[Turn]:
        """A context in which this thread computes. torch's random numbers are those of the seed in it, whoever
        computes in between, and afterwards go on as before."""
        turn = Turn(self, seed)
        turn.take()
        try:
            yield turn
        finally:
            turn.leave()

    @property
    def is_wanted(self) -> bool:
        """Whether another thread waits."""
        with self._changed:
            return self._given_out - self._current > 1

    def take(self) -> None:
        """Waits until it is this thread's turn."""
        with self._changed:
            number = self._given_out
            self._given_out += 1
            self._changed.wait_for(lambda: self._current == number)

    def leave(self) -> None:
        """Ends the turn."""
        with self._changed:
            self._current += 1
            self._changed.notify_all()


class Turn:
    """One thread's turns."""

    def __init__(self, turns: Turns, seed: int) -> None:
        self._turns = turns
        self._random = torch.Generator().manual_seed(seed).get_state()
        self._before = self._random

    def take(self) -> None:
        """Waits, and goes on with its own random numbers."""
        self._turns.take()
        self._before = torch.get_rng_state()
        torch.set_rng_state(self._random)

    def leave(self) -> None:
        """Lets others compute."""
        self._random = torch.get_rng_state()
        torch.set_rng_state(self._before)
        self._turns.leave()

    def offer(self) -> None:
        """Lets those compute that wait, one step each."""
        if self._turns.is_wanted:
            self.leave()
            self.take()
