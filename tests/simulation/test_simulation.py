"""Histories of the control plane with faults: see contributing/simulation.md. They run in processes of their own, in
which sets have the same order every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .happenings import plan
from .planted import PLANTED

_ROOT = Path(__file__).parents[2]
_SEEDS = 60  # of each part: about 12 s of CPU time
_MOST = 500  # histories in which a planted mistake is found
# The first history that finds it, if that is not one of the first ten: `make simulate ARGS='--first --plant NAME'`.
_FIRST = {"lost_when_unknown": 449, "outside_the_table": 44, "stored_twice": 71, "untold": 92, "without_token": 15}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONHASHSEED": "0"}
    command = (sys.executable, "-m", *words)
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)


def simulate(seeds: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs histories, in one process."""
    return run("tests.simulation", seeds, "--processes", "1", *options)


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_lost_whatever_happens(part: int) -> None:
    ran = simulate(f"{1 + part * _SEEDS}..{(part + 1) * _SEEDS}")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_failure_is_made_short_and_gives_the_same_history_again() -> None:
    found = simulate("2..2", "--plant", "never_again").stdout
    assert "seed 2 fails: " in found
    kept = found.partition("--keep ")[2].partition(" ")[0]
    assert 0 < len(kept.split(",")) < len(plan("2"))
    again = simulate("2..2", "--plant", "never_again", "--trace", "--keep", kept)
    assert again.returncode == 1
    end = found.partition(" effects):\n")[2].partition("\n\n")[0]
    assert "leases.claim" in end
    assert end in again.stdout


@pytest.mark.slow
def test_the_search_for_a_mistake_ends_with_the_first_history_that_fails() -> None:
    ran = simulate(f"1..{_MOST}", "--first", "--plant", "announced_early")
    assert (ran.returncode, ran.stdout.count("\n")) == (1, 1), ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    """The first history of each planted mistake that finds it."""
    ran = run("tests.simulation.mistakes", *(f"{name}={_FIRST.get(name, 1)}..{_MOST}" for name in PLANTED))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return dict(json.loads(ran.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("mistake", sorted(PLANTED))
def test_a_planted_mistake_is_found(mistake: str, found: dict[str, str | None]) -> None:
    assert found[mistake] is not None
