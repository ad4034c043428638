"""The descent: each density from the result of the one before, until two in a row miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.service.conftest import ScriptedExecutor

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db.engine.database import Database
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.teaching import dense_spec

from .gym import BASE, Gym, Quality

# On PostgreSQL, test_sweep_model.py and the other files make all statements that are made here.
pytestmark = pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)

OBERT: dict[str, Any] = {key: value for key, value in BASE.items() if key != "movement"} | {
    "training": {"max_steps": 600}
}
SEARCH: dict[str, Any] = {
    "search": {"goal": "DENSITY"},
    "gates": [{"metric": "delta/accuracy", "min": -0.01}],
    "base": OBERT,
}
LADDER = [0.5, 0.338, 0.229, 0.155, 0.105, 0.0707, 0.0478, 0.0323, 0.0219, 0.0148, 0.01]


@pytest.fixture
def make(db: Database, executor: ScriptedExecutor) -> Callable[[Quality], Gym]:
    return lambda quality: Gym(db, executor, quality)


def falls_below(limit: float, recovered: float = 1.0, to: float = 0.8) -> Quality:
    """A whole run reaches a lower density than a rung."""
    return lambda spec: 0.9 if spec.target_density >= (recovered if spec.training.max_steps == 600 else limit) else to


def first_whole(spec: job_pb2.CompressionSpec) -> job_pb2.CompressionSpec:
    """The spec with the steps of a whole run."""
    whole = job_pb2.CompressionSpec()
    whole.CopyFrom(spec)
    whole.training.max_steps = 600
    return whole


async def specs_of(gym: Gym) -> list[job_pb2.CompressionSpec]:
    points = await gym.points()
    rows = [await gym.job(point.job.rpartition("/")[2]) for point in points]
    return [job_pb2.CompressionSpec.FromString(row.spec) for row in rows]


async def test_each_run_goes_on_from_the_one_before(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.15, to=0.886))
    sweep = await gym.create(**SEARCH)
    assert sweep.spec.search.way == sweep_pb2.SearchStrategy.DESCENT
    assert any("at most 11 densities of 150 steps, each from the result of the one before" in n for n in sweep.notes)
    assert any("at most 3,450 steps" in note for note in sweep.notes)
    await gym.run()
    points, specs = await gym.points(), await specs_of(gym)
    assert [point.target_density for point in points] == [1.0, *LADDER[:6], LADDER[5], LADDER[4]]
    assert [spec.training.max_steps for spec in specs] == [600, *[150] * 6, 600, 600]
    dense, first, *others, whole, _ = specs
    jobs = [point.job for point in points]
    assert dense == dense_spec(first_whole(first))
    assert [spec.start_from for spec in (first, *others)] == [f"job:{job}" for job in jobs[:6]]
    assert whole.start_from == f"job:{jobs[0]}"
    assert (whole.obert.schedule.shape, whole.obert.schedule.events, whole.obert.schedule.first_event) == (0, 3, 0.5)
    for spec in (first, *others, whole):
        assert spec.start_artifact.startswith("projects/p/artifacts/")
        assert spec.teacher.job == jobs[0]
        assert spec.obert.gradients == 64
    for spec in (first, *others):
        assert spec.obert.schedule.shape == job_pb2.Schedule.ONE_SHOT
        assert round(spec.obert.schedule.pruning_start * spec.training.max_steps) == 1
    done = await gym.get()
    assert (done.state, done.state_reason) == (done.SUCCEEDED, "")
    assert points[done.recommendation.point - 1].target_density == LADDER[3]


@pytest.mark.parametrize(("way", "expected"), [("descent", False), ("bisection", True)])
async def test_a_descent_has_no_note_on_the_length_of_whole_runs(
    make: Callable[[Quality], Gym], way: str, expected: bool
) -> None:
    base = OBERT | {"training": {"max_steps": 20}}
    sweep = await make(falls_below(0.3)).create(
        **SEARCH | {"base": base, "search": {"way": way.upper(), "goal": "DENSITY"}}
    )
    assert any("steps are needed" in note for note in sweep.notes) == expected


async def test_a_task_that_is_not_known_is_refused(make: Callable[[Quality], Gym]) -> None:
    with pytest.raises(ApiError) as refused:
        await make(falls_below(0.3)).create(**SEARCH | {"base": OBERT | {"task": "sst3"}})
    assert "sweep.spec.base.task" in str(refused.value.violations)


async def test_a_whole_run_that_passes_is_recommended(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.15, recovered=0.1, to=0.886))
    await gym.create(**SEARCH)
    await gym.run()
    points, done = await gym.points(), await gym.get()
    assert done.recommendation.point == len(points)
    assert (points[-1].target_density, points[-1].cell["max_steps"]) == (LADDER[4], 600)


@pytest.mark.slow
@pytest.mark.parametrize(("recovered", "tried"), [(0.07, [LADDER[5]]), (0.1, [LADDER[5], LADDER[4]])])
async def test_of_densities_that_miss_by_little_the_smallest_has_a_whole_run_first(
    make: Callable[[Quality], Gym], recovered: float, tried: list[float]
) -> None:
    gym = make(falls_below(0.15, recovered, to=0.886))
    await gym.create(**SEARCH)
    await gym.run()
    points, specs = await gym.points(), await specs_of(gym)
    assert [point.target_density for point in points] == [1.0, *LADDER[:6], *tried]
    assert {spec.start_from for spec in specs[7:]} == {f"job:{points[0].job}"}
    assert (await gym.get()).recommendation.point == len(points)


async def test_after_a_whole_run_that_passes_the_next_smaller_density_has_one(make: Callable[[Quality], Gym]) -> None:
    def quality(spec: job_pb2.CompressionSpec) -> float:
        lost = 0.1 if spec.target_density < 0.09 else 0.015 if spec.target_density < 0.15 else 0.0
        return 0.9 if spec.training.max_steps == 600 else 0.9 - lost

    gym = make(quality)
    await gym.create(**SEARCH)
    await gym.run()
    points = await gym.points()
    assert [point.target_density for point in points] == [1.0, *LADDER[:6], LADDER[4], LADDER[5]]
    assert (await gym.get()).recommendation.point == len(points)


async def test_nothing_that_passes(make: Callable[[Quality], Gym]) -> None:
    gym = make(lambda spec: 0.9 if spec.target_density == 1 else 0.5)
    await gym.create(**SEARCH)
    await gym.run()
    done, points = await gym.get(), await gym.points()
    assert (done.state, done.state_reason) == (done.SUCCEEDED, "NO_POINT_PASSES")
    assert [point.target_density for point in points] == [1.0, *LADDER[:2], LADDER[0]]
    assert points[done.recommendation.point - 1].target_density < 1


@pytest.mark.parametrize("failing", ["s-0001", "s-0003"])
async def test_a_run_that_failed_is_retried_and_the_descent_goes_on(
    make: Callable[[Quality], Gym], failing: str
) -> None:
    gym = make(falls_below(0.15))
    await gym.create(**SEARCH)
    ran = await gym.run(failing=(failing,))
    assert ran[-1] == failing, "there is no result to go on from"
    await gym.retry()
    assert not set(await gym.run()) & (set(ran) - {failing}), "only what is missing"
    assert [point.target_density for point in await gym.points()] == [1.0, *LADDER[:6]]


async def test_a_full_disk_at_a_density_is_a_new_attempt_of_its_job(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.15))
    await gym.create(**SEARCH)
    for job_id in ("s-0001", "s-0002"):
        await gym.controller.step()
        await gym.resolve()
        await gym.succeed(job_id)
    await gym.controller.step()
    await gym.fail("s-0003", FailureReason.DISK_FULL)
    await gym.controller.step()
    assert [point.state for point in await gym.points()][-1] == sweep_pb2.SweepPoint.QUEUED
    assert (await gym.run())[0] == "s-0003"
    assert [point.target_density for point in await gym.points()] == [1.0, *LADDER[:6]]


async def test_the_densities_before_one_that_failed_are_recommended(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.15))
    await gym.create(**SEARCH)
    await gym.run(failing=("s-0004",))
    points, done = await gym.points(), await gym.get()
    assert points[done.recommendation.point - 1].target_density == LADDER[1]


async def test_each_seed_is_a_chain_of_its_own(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.3))
    await gym.create(**SEARCH | {"search": {"seeds": 2, "goal": "DENSITY"}})
    await gym.run()
    specs = await specs_of(gym)
    starts = {spec.seed: set[str]() for spec in specs}
    for spec in specs:
        starts[spec.seed].add(spec.start_from)
    assert sorted(starts) == [0, 1]
    assert any(note.endswith("at most 3,450 steps in each of 2 descents") for note in (await gym.get()).notes)
    assert starts[0] & starts[1] == {""}


@pytest.mark.slow
async def test_blocks_of_four_and_what_is_stored_are_those_of_the_base(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.3))
    stored = {"trim_vocabulary": True, "weight_dtype": "INT8", "activations": "INT8"}
    await gym.create(**SEARCH | {"base": OBERT | {"pattern": "1x4", "magnitude": {}} | stored})
    await gym.run()
    dense, _, *rungs = await specs_of(gym)
    assert (dense.pattern, dense.trim_vocabulary, dense.weight_dtype, dense.activations) == ("", False, 0, 0)
    assert {(spec.weight_dtype, spec.activations) for spec in rungs} == {(4, 2)}
    assert all((spec.pattern, spec.trim_vocabulary) == ("1x4", True) for spec in rungs)
    assert {spec.WhichOneof("method") for spec in rungs} == {"magnitude"}


async def test_a_search_is_for_a_fast_model(make: Callable[[Quality], Gym]) -> None:
    """Blocks of four and int8 activations; the dense model is measured with these too, and nothing goes on from it."""
    gym = make(falls_below(0.3))
    sweep = await gym.create(**SEARCH | {"search": {}})
    assert (sweep.spec.base.pattern, sweep.spec.base.activations) == ("1x4", job_pb2.Runtime.INT8)
    assert sweep.notes[0].startswith("the search is for a fast model: --pattern 1x4 and --activations int8, which")
    await gym.run()
    points, (dense, rounded, first, *rungs) = await gym.points(), await specs_of(gym)
    assert [point.target_density for point in points[:3]] == [1.0, 1.0, LADDER[0]]
    assert points[1].cell.fields.keys() == {"density", "activations"}
    assert rounded.start_from == first.start_from == f"job:{points[0].job}"
    assert (rounded.baseline.job, rounded.teacher.none, rounded.keep_fine_tuned) == (points[0].job, True, True)
    assert (rounded.weight_dtype, rounded.activations) == (job_pb2.CompressionSpec.INT8, job_pb2.Runtime.INT8)
    assert (rounded.pattern, dense.activations) == ("", 0)
    assert {(spec.pattern, spec.activations) for spec in (first, *rungs)} == {("1x4", job_pb2.Runtime.INT8)}


async def test_the_unpruned_model_in_int8_is_recommended_where_nothing_pruned_passes(
    make: Callable[[Quality], Gym],
) -> None:
    gym = make(lambda spec: 0.9 if spec.target_density == 1 else 0.5)
    await gym.create(**SEARCH | {"search": {}})
    await gym.run(failing=())
    done = await gym.get()
    assert done.recommendation.passed
    assert (await gym.points())[done.recommendation.point - 1].cell["activations"] == "int8"


async def test_a_failure_in_int8_does_not_end_the_descent(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.3))
    await gym.create(**SEARCH | {"search": {}})
    await gym.run(failing=("s-0002",))
    assert (await gym.points())[(await gym.get()).recommendation.point - 1].target_density == LADDER[1]


@pytest.mark.parametrize(
    ("base", "pattern", "activations"),
    [
        ({"pattern": "1x4"}, "1x4", job_pb2.Runtime.INT8),
        ({"activations": "FP32"}, "1x4", job_pb2.Runtime.FP32),
        ({"structure": "HEADS", "magnitude": {}}, "", job_pb2.Runtime.INT8),
    ],
)
async def test_what_is_given_stays(
    make: Callable[[Quality], Gym], base: dict[str, Any], pattern: str, activations: int
) -> None:
    found = await make(falls_below(0.3)).create(**SEARCH | {"search": {}, "base": OBERT | base}, validate_only=True)
    assert (found.spec.base.pattern, found.spec.base.activations) == (pattern, activations)


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ({"rpp": {}}, "the method rpp"),
        ({"model": "someone/something"}, "the shapes of the model are not known here"),
    ],
)
async def test_a_search_that_cannot_be_for_a_fast_model_says_why(
    make: Callable[[Quality], Gym], base: dict[str, Any], why: str
) -> None:
    found = await make(falls_below(0.3)).create(**SEARCH | {"search": {}, "base": OBERT | base}, validate_only=True)
    assert (found.spec.base.pattern, found.spec.base.activations) == ("", 0)
    assert found.notes[0].startswith("the search is for a fast model: without --pattern 1x4 and --activations int8")
    assert why in found.notes[0]


async def test_the_options_of_a_method_that_was_not_named_are_those_of_obert(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.3))
    sweep = await gym.create(**SEARCH | {"base": OBERT | {"auto": {"gradients": 32, "damping": 1e-5}}})
    assert any(note.startswith("descent with obert: ") for note in sweep.notes)
    assert not any("the method is" in note for note in sweep.notes)
    await gym.run()
    assert {(spec.obert.gradients, spec.obert.damping) for spec in (await specs_of(gym))[1:]} == {(32, 1e-5)}


async def test_a_teacher_that_is_named_stays(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.3))
    await gym.create(**SEARCH | {"base": OBERT | {"teacher": {"none": True}}})
    await gym.run()
    jobs = [point.job for point in await gym.points()]
    assert all(spec.teacher.none and spec.baseline.job == jobs[0] for spec in (await specs_of(gym))[1:])


async def test_a_teacher_that_is_to_be_trained_is_the_dense_model(make: Callable[[Quality], Gym]) -> None:
    gym = make(falls_below(0.3))
    await gym.create(**SEARCH | {"base": OBERT | {"teacher": {"train": True, "alpha": 0.5}}})
    await gym.run()
    dense, *rungs = [point.job for point in await gym.points()]
    specs = (await specs_of(gym))[1:]
    assert len(specs) == len(rungs)
    assert all((spec.teacher.job, spec.teacher.alpha) == (dense, 0.5) for spec in specs)
    assert not any(spec.HasField("baseline") for spec in specs)


async def test_a_small_dense_model_beside_it_may_be_recommended(make: Callable[[Quality], Gym]) -> None:
    gym = make(lambda spec: 0.9 if spec.target_density == 1 else 0.5)
    await gym.create(**SEARCH, points=[{"density": 1.0, "model": "prajjwal1/bert-tiny"}])
    await gym.run()
    points, done = await gym.points(), await gym.get()
    assert done.recommendation.passed
    assert points[done.recommendation.point - 1].model == "prajjwal1/bert-tiny"


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ({"movement": {}}, "movement cannot go on from a pruned model, as magnitude, obert can"),
        ({"training": {}}, "the number of steps is not known before a worker has read the data"),
        ({"auto": {"penalty": 1.0}}, "obert has no penalty"),
        ({"auto": {"schedule": {"cooldown": 0.3}}}, "the options of a schedule are given"),
        ({"structure": "HEADS", "magnitude": {}}, "heads, units and layers are pruned from the whole model"),
        ({"magnitude": {"schedule": {"cooldown": 0.3}}}, "the options of a schedule are given"),
        ({"baseline": {"train": True}}, "its dense model is the baseline of all its runs, and a baseline is given"),
        ({"trim_positions": True}, "no run can go on from an artifact with trim_positions"),
    ],
)
async def test_a_search_that_cannot_descend_says_why(
    make: Callable[[Quality], Gym], base: dict[str, Any], why: str
) -> None:
    gym = make(falls_below(0.3))
    asked = SEARCH | {"base": OBERT | base}
    sweep = await gym.create(**asked, validate_only=True)
    assert sweep.spec.search.way == sweep_pb2.SearchStrategy.BISECTION
    assert any(note.startswith("the search is a bisection, not a descent: ") and why in note for note in sweep.notes)
    refused = await gym.refused(**asked | {"search": {"way": "DESCENT"}})
    assert why in refused["sweep.spec.search.way"]


async def test_dense_models_of_each_run_are_no_descent(make: Callable[[Quality], Gym]) -> None:
    sweep = await make(falls_below(0.3)).create(**SEARCH, policy={"own_baselines": True})
    assert sweep.spec.search.way == sweep_pb2.SearchStrategy.BISECTION
    assert any("own_baselines asks for one in each" in note for note in sweep.notes)


async def test_a_bisection_is_made_when_it_is_asked_for(make: Callable[[Quality], Gym]) -> None:
    sweep = await make(falls_below(0.3)).create(
        **SEARCH | {"search": {"way": "BISECTION", "goal": "DENSITY"}, "base": OBERT | {"obert": {}}}
    )
    assert sweep.spec.search.way == sweep_pb2.SearchStrategy.BISECTION
    assert not any("descent" in note for note in sweep.notes)
