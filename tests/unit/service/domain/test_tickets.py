"""The next runs of a study, from the states of those that there are."""

from __future__ import annotations

import random

import pytest

from mvprune.sweep.tickets.study import Key, Run, Study, Transfer, arranged
from mvprune_service.domain.sweeping import PointState
from mvprune_service.domain.tickets import next_runs

BASE = {"task": "sst2", "density": 0.8, "seed": 0}
LIVE = (PointState.PENDING, PointState.QUEUED, PointState.RUNNING)
LOST = (PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED, PointState.DELETED)


def study(**options: object) -> Study:
    return arranged({}, (), BASE, options)


def kinds(runs: list[Run]) -> list[tuple[str, float]]:
    return [(run.kind, run.density) for run in runs]


def test_what_needs_no_mask_is_trained_first() -> None:
    found = next_runs(study().runs(), {})
    assert kinds(found.runs) == [("dense", 1.0), ("random_mask", 0.8)]
    assert not found.is_complete


def test_a_round_and_the_controls_follow_the_run_that_their_mask_is_from() -> None:
    states: dict[Key, PointState] = {}
    runs, seen = study(controls=["shuffled", "random"]).runs(), list[list[tuple[str, float]]]()
    while True:
        found = next_runs(runs, states)
        if not found.runs:
            break
        assert not found.is_complete
        seen.append(kinds(found.runs))
        states |= dict.fromkeys((run.key for run in found.runs), PointState.QUEUED)
        waiting = next_runs(runs, states)
        assert not waiting.runs, "nothing is added twice, and nothing before its mask is there"
        assert waiting.is_complete == (len(states) == len(runs))
        states |= dict.fromkeys((run.key for run in found.runs), PointState.SUCCEEDED)
    assert seen == [[("dense", 1.0)], [("ticket", 0.9)], [("ticket", 0.8)], [("random", 0.8), ("shuffled", 0.8)]]
    assert next_runs(runs, states).is_complete


@pytest.mark.parametrize("lost", LOST)
def test_a_round_without_a_result_stops_its_own_chain(lost: PointState) -> None:
    runs = arranged({"seed": (0, 1)}, (), BASE, {"controls": ["none"]}).runs()
    first, second = (next(run for run in runs if run.kind == "dense" and run.seed == seed) for seed in (0, 1))
    states = {first.key: lost, second.key: PointState.SUCCEEDED}
    found = next_runs(runs, states)
    assert [(run.kind, run.density, run.seed) for run in found.runs] == [("ticket", 0.9, 1)]
    states = {run.key: PointState.SUCCEEDED for run in runs if run.seed == 1} | {first.key: lost}
    assert next_runs(runs, states) == ([], True), "the rest of the chain is not awaited"
    found = next_runs(runs, states | {first.key: PointState.SUCCEEDED})
    assert [(run.density, run.seed) for run in found.runs] == [(0.9, 0)], "after a retry it goes on"
    for live in LIVE:
        assert next_runs(runs, states | {first.key: live}) == ([], False)


def test_a_mask_of_another_task_waits_for_that_tasks_rounds() -> None:
    options = {"controls": ["none"], "transfer_density": 0.9, "transfer_targets": ["mrpc"], "table_tasks": ["sst2"]}
    found = arranged({"task": ("sst2", "mrpc")}, (), BASE, options)
    assert found.transfer == Transfer(0.9, ("sst2", "mrpc"), ("mrpc",))
    runs = found.runs()
    of_mrpc = {run.key: PointState.SUCCEEDED for run in runs if run.task == "mrpc" and run.kind != "transfer"}
    [dense] = next_runs(runs, of_mrpc).runs
    assert (dense.kind, dense.task) == ("dense", "sst2")
    source = Key("ticket", "sst2", 0.9, 0, "")
    states = of_mrpc | {dense.key: PointState.SUCCEEDED, source: PointState.SUCCEEDED}
    added = next_runs(runs, states).runs
    assert [(run.kind, run.task, run.key.mask_task) for run in added] == [
        ("ticket", "sst2", ""),
        ("transfer", "mrpc", "sst2"),
    ]


def test_every_study_ends_whatever_becomes_of_its_runs() -> None:
    """Drawn at random: each run is added once, after its mask; what is missing at the end is below a lost run."""
    chance = random.Random(1)
    for _ in range(200):
        axes = {"task": ("sst2", "mrpc"), "density": (0.9, 0.7), "seed": (0, 1)}
        runs = arranged(axes, (), BASE, {"transfer_density": chance.choice([None, 0.8])}).runs()
        states: dict[Key, PointState] = {}
        while not (found := next_runs(runs, states)).is_complete:
            for run in found.runs:
                assert run.key not in states
                assert run.mask is None or states[run.mask.key] is PointState.SUCCEEDED
                states[run.key] = PointState.PENDING
            pending = [key for key, state in states.items() if state is PointState.PENDING]
            states[chance.choice(pending)] = chance.choice([PointState.SUCCEEDED] * 4 + [PointState.FAILED])
        for run in runs:
            is_lost = False
            mask = run.mask
            while mask is not None and not is_lost:
                is_lost, mask = states.get(mask.key) is PointState.FAILED, mask.mask
            assert (run.key in states) != is_lost
