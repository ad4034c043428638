"""Histories of the control plane with faults: see contributing/simulation.md. They run in processes of their own, in
which sets have the same order every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .happenings import plan

_ROOT = Path(__file__).parents[2]
_SEEDS = 60  # of each part: about 12 s of CPU time
_PLANTED = {
    "without_token": 50,
    "announced_early": 25,
    "without_event": 25,
    "published_twice": 500,
    "lost_when_unknown": 500,
    "outside_the_table": 200,
    "stored_twice": 100,
    "never_again": 100,
}


def simulate(seeds: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs histories, in one process."""
    command = (sys.executable, "-m", "tests.simulation", seeds, "--processes", "1", *options)
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_lost_whatever_happens(part: int) -> None:
    ran = simulate(f"{1 + part * _SEEDS}..{(part + 1) * _SEEDS}")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_gives_the_same_history_again() -> None:
    seed = next(str(number) for number in range(100) if len(plan(str(number))) > 6)
    first, second = (simulate(seed, "--trace").stdout for _ in range(2))
    assert first == second
    assert "leases.publish" in first


def test_a_failure_is_made_short_and_can_be_repeated() -> None:
    ran = simulate("2..2", "--plant", "never_again")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "seed 2 fails: " in ran.stdout
    again = ran.stdout.partition("--keep ")[2].partition(" ")[0]
    kept = simulate("2..2", "--keep", again, "--plant", "never_again")
    assert kept.returncode == 1
    assert len(again.split(",")) < len(plan("2"))
    assert kept.stdout.splitlines()[-1] in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("mistake", _PLANTED)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    ran = simulate(f"1..{_PLANTED[mistake]}", "--plant", mistake)
    assert ran.returncode == 1, ran.stdout + ran.stderr
