"""The runs that follow from the settings of a study."""

from __future__ import annotations

import pytest

from mvprune.sweep.tickets.study import CONTROLS, arranged, key_of, rounds_to

BASE = {"task": "sst2", "density": 0.0, "seed": 0}
AXES = {"task": ("sst2", "mrpc"), "density": (0.5, 0.1), "seed": (0, 1)}


def test_runs_are_each_there_once_and_after_the_one_that_their_mask_is_from() -> None:
    runs = arranged(AXES, (), BASE, {"transfer_density": 0.3}).runs()
    assert len({run.key for run in runs}) == len(runs)
    for number, run in enumerate(runs):
        assert run.mask is None or run.mask in runs[:number]
        assert key_of(run.cell) == run.key
    assert sum(run.kind == "dense" for run in runs) == 2 * 2
    assert sum(run.kind == "ticket" for run in runs) == 2 * 2 * 9
    assert sum(run.kind in CONTROLS for run in runs) == 2 * 2 * (2 * 4 + 1)
    assert [(run.task, run.mask.task) for run in runs if run.kind == "transfer" and run.mask and run.seed == 0] == [
        ("sst2", "mrpc"),
        ("mrpc", "sst2"),
    ]


def test_each_round_has_its_mask_from_the_one_before() -> None:
    rounds = arranged({"density": (0.7,)}, (), BASE, {}).rounds("sst2", 3, 0.7)
    assert [(run.kind, run.density) for run in rounds] == [
        ("dense", 1.0),
        ("ticket", 0.9),
        ("ticket", 0.8),
        ("ticket", 0.7),
    ]
    assert [run.mask for run in rounds] == [None, *rounds[:-1]]


def test_points_are_further_tasks_and_values_of_the_base_stand_for_axes() -> None:
    found = arranged({}, [{"task": "masked-lm", "train": "x"}], BASE | {"density": 0.9}, {"table_tasks": ["sst2"]})
    assert (found.tasks, found.table_tasks) == (("sst2", "masked-lm"), ("sst2",))
    assert (found.densities, found.seeds, found.transfer) == ((0.9,), (0,), None)
    assert {run.task for run in found.runs()} == {"sst2"}


@pytest.mark.parametrize(
    ("density", "step", "nearest"),
    [(0.25, 0.1, "0.2"), (1.0, 0.1, "0.9"), (0.97, 0.1, "0.9"), (0.0, 0.1, "0.1"), (-3, 0.1, "0.1"), (0.5, 0.3, "0.4")],
)
def test_a_density_that_no_round_reaches(density: float, step: float, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"must be 1 minus a multiple of the step \({step}\).*nearest is {nearest}$"):
        rounds_to(density, step)


def test_not_a_number_is_no_density() -> None:
    with pytest.raises(ValueError, match="got nan"):
        rounds_to(float("nan"), 0.1)


def test_every_density_of_a_round_is_reached() -> None:
    for parts in (2, 3, 7, 10, 20):
        assert [rounds_to(1 - number / parts, 1 / parts) for number in range(1, parts)] == list(range(1, parts))
