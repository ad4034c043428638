"""Ranks that stand still, by a clock of the test."""

from __future__ import annotations

import os
import subprocess
from dataclasses import fields
from pathlib import Path

from mvprune_workers.alive import Watch
from mvprune_workers.events import SignEvent, parse
from mvprune_workers.folders import Folders
from mvprune_workers.supervisor import TRAINER


class Machine:
    """A watch that looks once a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.said: list[str] = []
        self.lost: list[str] = []
        self.watch = Watch(self.said.append, self.lost.append, silent=30, lost=300, clock=lambda: self.now)

    def passes(self, seconds: int, *ranks: int) -> None:
        """So many seconds pass, in which only these ranks send signs. Looks until a rank is given up."""
        for _ in range(seconds):
            self.now += 1
            for rank in ranks:
                self.watch.take(SignEvent(rank))
            if self.watch.look():
                return


def test_a_rank_that_stands_still_is_named_and_given_up() -> None:
    machine = Machine()
    machine.passes(60, 0, 1, 2)
    machine.passes(29, 0, 2)
    assert machine.said == []
    machine.passes(1, 0, 2)
    end = ": it is stopped, or hangs; the attempt ends after 5m00s"
    assert machine.said == [f"rank 1 has not answered for 30s{end}"]
    machine.passes(1000, 0, 2)
    assert [line.removesuffix(end) for line in machine.said[1:]] == [
        f"rank 1 has not answered for {time}" for time in ("1m00s", "2m00s", "4m00s")
    ]
    assert machine.lost == ["The attempt has lost rank 1: no answer for 5m00s; stopped, or hanging."]


def test_a_rank_that_answers_again_is_kept() -> None:
    machine = Machine()
    machine.passes(1, 0, 1)
    machine.passes(40, 1)
    machine.passes(300, 0, 1)
    assert machine.said[1:] == ["rank 0 answers again, after 41s"]
    assert machine.lost == []


def test_a_rank_that_leaves_is_not_missed() -> None:
    machine = Machine()
    machine.passes(1, 0, 1)
    machine.watch.take(SignEvent(1, leaves=True))
    machine.passes(400, 0)
    assert (machine.said, machine.lost) == ([], [])


def test_a_watch_that_stood_still_itself_blames_nobody() -> None:
    machine = Machine()
    machine.passes(1, 0, 1)
    machine.now += 5000
    machine.passes(1)
    machine.passes(20, 0, 1)
    assert (machine.said, machine.lost) == ([], [])


def test_several_are_lost() -> None:
    machine = Machine()
    machine.passes(1, 0, 1, 2)
    machine.passes(400, 1)
    assert machine.lost == ["The attempt has lost rank 0 and rank 2: no answer for 5m00s; stopped, or hanging."]


def test_the_trainer_sends_signs_before_it_has_a_job(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    options = {f"--{each.name}": tmp_path / each.name for each in fields(Folders)}
    options |= {"--threads": 1, "--device": "cpu", "--ranks": 2, "--rank": 1, "--events-fd": writing}  # type: ignore[dict-item]
    command = [*TRAINER, *(str(word) for option in options.items() for word in option)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(writing,), start_new_session=True)
    try:
        assert parse(os.read(reading, 1000).splitlines()[0]) == SignEvent(1)
    finally:
        process.kill()
        process.communicate()
        os.close(reading)
        os.close(writing)
