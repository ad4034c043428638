"""Sweeps over a grid: their jobs, their ends, and what users do to them."""

from __future__ import annotations

import pytest
from tests.conftest import Tiny, server_path
from tests.unit.service.conftest import ScriptedExecutor

from mvprune.sources.references import Roots
from mvprune_service.db.engine.database import Database

from .gym import BASE, Gym

AXES = [
    {"parameter": "method", "values": ["movement", "magnitude"]},
    {"parameter": "density", "values": [0.03, 0.1, 0.3]},
    {"parameter": "seed", "values": [0, 1]},
]


@pytest.fixture
def gym(db: Database, executor: ScriptedExecutor) -> Gym:
    return Gym(db, executor)


async def test_a_grid_runs_every_cell_once_and_trains_one_baseline_a_seed(gym: Gym) -> None:
    sweep = await gym.create(axes=AXES, policy={"parallel": 3})
    assert (sweep.name, sweep.counts.total, sweep.counts.pending) == ("projects/p/sweeps/s", 12, 12)
    ran = await gym.run()
    assert sorted(job for job in ran if job.startswith("s-")) == [f"s-{number:04d}" for number in range(1, 13)]
    assert len([job for job in ran if job.startswith("sst2-baseline-")]) == 2
    done = await gym.get()
    assert done.state == done.SUCCEEDED
    assert (done.counts.succeeded, done.counts.baselines) == (12, 2)
    assert done.recommendation.passed
    points = await gym.points()
    assert [(point.method, round(point.target_density, 2), point.seed) for point in points[:4]] == [
        ("movement", 0.03, 0),
        ("movement", 0.03, 1),
        ("movement", 0.1, 0),
        ("movement", 0.1, 1),
    ]
    assert {point.job.rpartition("/")[2] for point in points} == {job for job in ran if job.startswith("s-")}
    assert done.cost.saved_runtime.ToMicroseconds() > 0


async def test_points_without_a_density_have_that_of_their_pattern(gym: Gym) -> None:
    axes = [{"parameter": "pattern", "values": ["2:4", "1:4"]}]
    sweep = await gym.create(axes=axes)
    assert [note for note in sweep.notes if "pattern" in note] == [
        "the density is 0.5, that of the pattern 2:4",
        "the density is 0.25, that of the pattern 1:4",
    ]
    assert [point.target_density for point in await gym.points()] == [0.5, 0.25]
    one = await gym.create(sweep_id="t", axes=AXES[::2], base=BASE | {"pattern": "2:4"})
    assert one.counts.total == 4


async def test_blocks_of_four_have_the_density_that_is_given(gym: Gym) -> None:
    base = BASE | {"pattern": "1x4"}
    one = await gym.create(axes=[{"parameter": "density", "values": [0.1, 0.3]}], base=base)
    assert [note for note in one.notes if "pattern" in note] == []
    assert [point.target_density for point in await gym.points()] == [0.1, 0.3]
    searched = await gym.create(sweep_id="t", axes=[], base=base, search={"seeds": 1}, max_loss=1.0)
    assert searched.spec.base.pattern == "1x4"


async def test_each_point_without_a_method_has_one_of_its_own(gym: Gym) -> None:
    base = {"model": "bert-base-uncased", "task": "sst2", "target_density": 0.1}
    base |= {"training": {"max_steps": 300, "batch_size": 16}}
    axes = [{"parameter": "max_steps", "values": [300, 30_000]}]
    sweep = await gym.create(base=base, axes=axes)
    assert [point.method for point in await gym.points()] == ["obert", "soft_movement"]
    assert [note.partition(":")[0] for note in sweep.notes if note.startswith("the method is ")] == [
        "the method is obert",
        "the method is soft_movement",
    ]
    methods = [{"parameter": "method", "values": ["auto", "obert", "magnitude"]}]
    one = await gym.create(sweep_id="t", base=base, axes=methods)
    assert len([note for note in one.notes if note.startswith("the method is obert")]) == 1


async def test_points_choose_by_the_rows_of_the_base_also_in_a_search(
    db: Database, executor: ScriptedExecutor, tiny: Tiny
) -> None:
    roots = Roots(models=tiny.models, allowed=(tiny.train.parent,))
    gym = Gym(db, executor, lambda spec: 0.9 if spec.target_density > 0.1 else 0.5, roots=roots)
    dataset = {"train": server_path(tiny.train), "validation": server_path(tiny.validation)}
    base = {"model": "tiny-bert", "task": "text-classification", "dataset": dataset, "training": {"epochs": 2}}
    sweep = await gym.create(base=base, search={"way": "BISECTION"}, gates=[{"metric": "delta/accuracy", "min": -0.1}])
    assert sweep.spec.train_rows == 256
    await gym.run()
    points = await gym.points()
    assert len(points) > 1
    assert {point.method for point in points} == {"obert"}
