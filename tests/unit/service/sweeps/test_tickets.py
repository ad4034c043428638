"""Studies of lottery tickets: rounds that follow each other, what they train, failures, retries and extensions."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct, Value
from tests.unit.service.conftest import ScriptedExecutor

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.domain.machine import JobState
from mvprune_service.ids import JobName

from .gym import NAME, Gym

# On PostgreSQL, test_sweep_model.py and the other files make all statements that are made here.
pytestmark = pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)

BASE = {"model": "bert-base-uncased", "task": "sst2"}
FP32 = job_pb2.CompressionSpec.FP32


def axis(name: str, *values: Any) -> dict[str, Any]:
    return {"parameter": name, "values": list(values)}


ROUNDS: dict[str, Any] = {"base": BASE, "tickets": {}, "axes": [axis("density", 0.8)]}


@pytest.fixture
def gym(db: Database, executor: ScriptedExecutor) -> Gym:
    return Gym(db, executor)


async def runs(gym: Gym) -> list[tuple[str, str, float]]:
    """Run, task and density of the points, by number."""
    cells = [point.cell.fields for point in await gym.points()]
    return [(cell["run"].string_value, cell["task"].string_value, cell["density"].number_value) for cell in cells]


async def spec_of(gym: Gym, job_id: str) -> job_pb2.CompressionSpec:
    return job_pb2.CompressionSpec.FromString((await gym.job(job_id)).spec)


async def extend(gym: Gym, *axes: dict[str, Any], points: Any = (), **call: Any) -> sweep_pb2.Sweep:
    request = sweep_pb2.ExtendSweepRequest(name=NAME, points=points, **call)
    for one in axes:
        added = request.axes.add(parameter=one["parameter"])
        for value in one["values"]:
            added.values.add(**{"string_value" if isinstance(value, str) else "number_value": value})
    return await gym.servicer.ExtendSweep(request, None)


async def test_a_transfer_with_one_task_is_said_to_have_no_other(gym: Gym) -> None:
    sweep = await gym.create(**ROUNDS | {"tickets": {"transfer_density": 0.8}})
    assert "no mask is trained on another task: transfer_density needs several tasks, got one" in sweep.notes


async def test_each_round_has_the_mask_of_the_job_before(gym: Gym) -> None:
    sweep = await gym.create(**ROUNDS)
    assert sweep.notes == ["one seed does not tell whether a ticket wins: seed takes several values, such as 0..4"]
    assert await runs(gym) == [("dense", "sst2", 1.0), ("random_mask", "sst2", 0.8)]
    await gym.run()
    assert await gym.state() == "SUCCEEDED"
    controls = [(name, "sst2", 0.8) for name in ("random", "shuffled", "shuffled_layers")]
    rounds = [("ticket", "sst2", 0.9), ("ticket", "sst2", 0.8)]
    assert await runs(gym) == [("dense", "sst2", 1.0), ("random_mask", "sst2", 0.8), *rounds, *controls]
    masks = [(await spec_of(gym, f"s-{number:04d}")).locked_mask.mask_from.job for number in range(3, 8)]
    assert masks == [f"projects/p/jobs/s-{number:04d}" for number in (1, 3, 4, 4, 4)]
    done = await gym.get()
    assert not done.HasField("recommendation")
    assert not any(point.optimal for point in await gym.points())


async def test_what_the_runs_train(gym: Gym) -> None:
    """Field by field, as `compress` is called for a study by hand in tests/integration/test_tickets.py."""
    training = {"max_steps": 20, "learning_rate": 1e-3}
    await gym.create(**ROUNDS | {"base": BASE | {"training": training, "locked_mask": {"rewind": 0.1}, "seed": 3}})
    await gym.run()
    specs = {point.cell.fields["run"].string_value: point for point in await gym.points()}
    for name, point in specs.items():
        spec = await spec_of(gym, point.job.rpartition("/")[2])
        assert (spec.weight_dtype, spec.embedding_dtype, spec.seed, spec.model) == (FP32, FP32, 3, BASE["model"])
        assert (spec.teacher.none, spec.baseline.none) == (True, name != "dense")
        assert (spec.training.max_steps, spec.training.learning_rate) == (20, 1e-3)
        assert spec.training.HasField("lr_density_exponent")
        assert spec.training.lr_density_exponent == 0
        assert spec.target_density == (1.0 if name == "dense" else 0.8)
        if name == "dense":
            assert spec.magnitude == job_pb2.MagnitudePruning()
        elif name == "random_mask":
            schedule = job_pb2.Schedule(shape=job_pb2.Schedule.ONE_SHOT, pruning_start=0.1)
            assert spec.random == job_pb2.RandomPruning(schedule=schedule, selection=job_pb2.GLOBAL)
        else:
            mask = spec.locked_mask
            weights = job_pb2.LockedMask.InitialWeights.Name(mask.initial_weights).lower()
            assert weights == ("model" if name == "ticket" else name)
            assert (mask.selection, mask.rewind) == (job_pb2.GLOBAL, 0.1)


async def test_all_runs_of_a_study_in_blocks_have_the_pattern(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"base": BASE | {"pattern": "1x4"}})
    await gym.run()
    assert await gym.state() == "SUCCEEDED"
    count = len(await gym.points())
    assert {(await spec_of(gym, f"s-{number:04d}")).pattern for number in range(1, count + 1)} == {"1x4"}


@pytest.mark.slow
async def test_without_rewinding_a_random_mask_applies_from_the_first_step(gym: Gym) -> None:
    await gym.create(**ROUNDS)
    [point] = [point for point in await gym.points() if point.method == "random"]
    await gym.controller.step()
    spec = await spec_of(gym, f"s-{point.number:04d}")
    assert spec.random.schedule.HasField("pruning_start")
    assert spec.random.schedule.pruning_start == 0


async def test_the_training_may_have_an_exponent_of_its_own(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"base": BASE | {"training": {"lr_density_exponent": 1}}})
    await gym.controller.step()
    assert (await spec_of(gym, "s-0001")).training.lr_density_exponent == 1


async def test_masks_are_trained_on_other_tasks_with_data_of_their_own(gym: Gym) -> None:
    strategy = {"controls": ["NONE"], "transfer_density": 0.9, "transfer_targets": ["mrpc"], "table_tasks": ["mrpc"]}
    given = ROUNDS | {"axes": [axis("density", 0.8)], "tickets": strategy}
    asked = await gym.create(**given, points=[{"task": "mrpc", "max_steps": 7}], validate_only=True)
    assert asked.estimate.jobs == 3 + 2 + 1
    assert asked.estimate.baselines == 0
    await gym.create(**given, points=[{"task": "mrpc", "max_steps": 7}])
    await gym.run()
    found = await gym.points()
    assert sorted(await runs(gym)) == sorted(
        [
            *(("dense", task, 1.0) for task in ("sst2", "mrpc")),
            *(("ticket", task, 0.9) for task in ("sst2", "mrpc")),
            ("ticket", "mrpc", 0.8),
            ("transfer", "mrpc", 0.9),
        ]
    )
    [transfer] = [point for point in found if point.cell.fields["run"].string_value == "transfer"]
    assert transfer.cell.fields["mask_task"].string_value == "sst2"
    [source] = [point for point in found if point.task == "sst2" and point.target_density == 0.9]
    spec = await spec_of(gym, transfer.job.rpartition("/")[2])
    assert (spec.locked_mask.mask_from.job, spec.task, spec.training.max_steps) == (source.job, "mrpc", 7)
    assert (await spec_of(gym, source.job.rpartition("/")[2])).training.max_steps == 0


async def test_a_failed_round_stops_its_chain_only_and_a_retry_continues_it(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"tickets": {"controls": ["SHUFFLED"]}, "axes": [*ROUNDS["axes"], axis("seed", 0, 1)]})
    await gym.controller.step()
    assert await gym.states() == ["QUEUED"] * 2
    await gym.run(failing=["s-0001"])
    done = await gym.get()
    assert (done.state, done.counts.total, done.counts.failed) == (done.SUCCEEDED, 1 + 4, 1)
    await gym.retry()
    await gym.run()
    done = await gym.get()
    assert (done.state, done.counts.total, done.counts.failed, done.counts.succeeded) == (done.SUCCEEDED, 8, 0, 8)
    spec = await spec_of(gym, (await gym.points())[5].job.rpartition("/")[2])
    assert spec.locked_mask.mask_from.job == "projects/p/jobs/s-0001"


async def test_the_retry_of_the_failed_job_continues_the_chain_too(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"tickets": {"controls": ["NONE"]}})
    await gym.run(failing=["s-0001"])
    assert await gym.state() == "FAILED"

    def again(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", "s-0001"))
        assert job is not None
        lifecycle.retry(tx, job, actor="user")

    await gym.db.write(again)
    await gym.succeed("s-0001")
    assert await gym.state() == "ACTIVE"
    await gym.run()
    done = await gym.get()
    assert (done.state, done.counts.succeeded) == (done.SUCCEEDED, 3)


async def test_cancel_pause_and_resume(gym: Gym) -> None:
    await gym.create(**ROUNDS)
    await gym.controller.step()
    await gym.servicer.PauseSweep(sweep_pb2.PauseSweepRequest(name=NAME), None)
    await gym.succeed("s-0001")
    await gym.controller.step()
    assert len(await gym.points()) == 2, "no round is added while it is paused"
    await gym.servicer.ResumeSweep(sweep_pb2.ResumeSweepRequest(name=NAME), None)
    await gym.controller.step()
    assert len(await gym.points()) == 3
    await gym.servicer.CancelSweep(sweep_pb2.CancelSweepRequest(name=NAME), None)
    await gym.run()
    assert await gym.state() == "CANCELLED"
    assert {job.state for job in await gym.jobs()} == {JobState.SUCCEEDED, JobState.CANCELLED}
    await gym.retry()
    await gym.run()
    done = await gym.get()
    assert (done.state, done.counts.succeeded) == (done.SUCCEEDED, 7), "it goes on where it was"
    await gym.servicer.DeleteSweep(sweep_pb2.DeleteSweepRequest(name=NAME), None)
    assert await gym.jobs() == []


@pytest.mark.slow
async def test_a_round_whose_mask_was_deleted_is_skipped_with_the_reason(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"tickets": {"controls": ["NONE"]}})
    await gym.controller.step()
    await gym.succeed("s-0001")
    await gym.servicer.PauseSweep(sweep_pb2.PauseSweepRequest(name=NAME), None)
    await gym.controller.step()  # it keeps the result

    def delete(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", "s-0001"))
        assert job is not None
        lifecycle.remove(tx, job)

    await gym.db.write(delete)
    await gym.servicer.ResumeSweep(sweep_pb2.ResumeSweepRequest(name=NAME), None)
    await gym.run()
    first, second = await gym.points()
    assert (first.state, second.state, second.state_reason) == (first.SUCCEEDED, second.SKIPPED, "INVALID_MODEL")


@pytest.mark.slow
async def test_more_seeds_densities_and_tasks_are_added_and_what_is_there_is_kept(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"tickets": {"controls": ["NONE"]}})
    ran = await gym.run()
    asked = await extend(gym, axis("seed", 0, 1), axis("density", 0.7), validate_only=True)
    assert (asked.counts.total, asked.estimate.jobs) == (3 + 1 + 4, 5)
    more = await extend(gym, axis("seed", 0, 1), axis("density", 0.7))
    assert {one.parameter: [value.number_value for value in one.values] for one in more.spec.axes} == {
        "density": [0.8, 0.7],
        "seed": [0, 1],
    }
    again = await gym.run()
    assert not set(ran) & set(again)
    assert len(again) == 5
    task = Struct(fields={"task": Value(string_value="mrpc"), "max_steps": Value(number_value=3)})
    await extend(gym, points=[task])
    assert len(await gym.run()) == 2 * 4
    etag = (await gym.get()).etag
    await extend(gym, axis("seed", 0, 1), points=[task])
    assert (await gym.get()).etag == etag, "there is nothing new in it"


async def test_a_deeper_density_is_added_while_the_rounds_before_it_run(gym: Gym) -> None:
    await gym.create(**ROUNDS | {"tickets": {"controls": ["NONE"]}})
    await gym.controller.step()
    await extend(gym, axis("density", 0.7))
    await gym.run()
    assert [density for _, _, density in await runs(gym)] == [1.0, 0.9, 0.8, 0.7]


async def test_results_of_an_equal_study_are_reused(gym: Gym) -> None:
    given = ROUNDS | {"tickets": {"controls": ["SHUFFLED"]}}
    await gym.create(**given)
    await gym.run()
    await gym.create(**given, sweep_id="again", policy={"reuse": True})
    assert await gym.run(sweep_id="again") == []


@pytest.mark.parametrize(
    ("axes", "points", "field", "words"),
    [
        ([axis("seed", 1), axis("density", 0.7, 0.75)], [], "axes[1].values[1]", "the nearest is 0.8"),
        ([axis("task", "mrpc", "mprc")], [], "axes[0].values[1]", "did you mean mrpc?"),
        ([axis("method", "l0")], [], "axes[0].parameter", "must be one of task, density, seed with tickets"),
        ([], [{"task": "sst2"}], "points[0].task", "must be a task that the study does not have yet, got 'sst2'"),
        ([], [], "axes", "must have at least one axis, or points, got none"),
    ],
)
async def test_what_cannot_be_added(gym: Gym, axes: Any, points: Any, field: str, words: str) -> None:
    await gym.create(**ROUNDS)
    given = [Struct(fields={name: Value(string_value=value) for name, value in one.items()}) for one in points]
    with pytest.raises(ApiError) as refused:
        await extend(gym, *axes, points=given)
    assert {name: words in text for name, text in refused.value.violations} == {field: True}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a density that no round has": (
        {"axes": [axis("density", 0.5, 0.25)]},
        {
            "sweep.spec.axes[0].values[1]": (
                "must be 1 minus a multiple of the step (0.1) and below 1, got 0.25; the nearest is 0.2"
            )
        },
    ),
    "a density of the base": (
        {"axes": [], "base": BASE | {"target_density": 1}},
        {"sweep.spec.base.target_density": "got 1; the nearest is 0.9"},
    ),
    "no density": ({"axes": []}, {"sweep.spec.base.target_density": "must be given with tickets, got none"}),
    "no task": ({"base": {"model": "bert-base-uncased"}}, {"sweep.spec.base.task": "must be given with tickets"}),
    "a task that does not exist": (
        {"axes": [axis("density", 0.8), axis("task", "mrpc", "sst3")], "base": {"model": BASE["model"]}},
        {"sweep.spec.axes[1].values[1]": "did you mean sst2?"},
    ),
    "a method": (
        {"base": BASE | {"movement": {}}},
        {"sweep.spec.base.method": "must be locked_mask or unset with tickets, whose rounds prune by magnitude"},
    ),
    "a pattern with one density": (
        {"base": BASE | {"pattern": "2:4"}},
        {"sweep.spec.base.pattern": "must be 1x4 or unset with tickets, whose rounds have several densities"},
    ),
    "a mask": (
        {"base": BASE | {"locked_mask": {"mask_from": {"job": "j"}, "initial_weights": "RANDOM"}}},
        {
            "sweep.spec.base.locked_mask.mask_from": "must be unset with tickets, whose masks are those of the rounds",
            "sweep.spec.base.locked_mask.initial_weights": "got 'random'",
        },
    ),
    "a teacher, and how floats are stored": (
        {"base": BASE | {"teacher": {"train": True}, "weight_dtype": "FP16", "delta": True}},
        {
            "sweep.spec.base.teacher": "must be unset with tickets, whose runs have no teacher, got 'train'",
            "sweep.spec.base.weight_dtype": "whose runs store fp32: the next round compares the trained weights",
            "sweep.spec.base.delta": "must be unset with tickets",
        },
    ),
    "an axis of something else": (
        {"axes": [axis("density", 0.8), axis("learning_rate", 1e-5)]},
        {"sweep.spec.axes[1].parameter": "must be one of task, density, seed with tickets, got 'learning_rate'"},
    ),
    "gates, and other wishes about a recommendation": (
        {
            "gates": [{"metric": "delta/accuracy", "min": 0}],
            "seeds": "WORST",
            "policy": {"early_stop": True, "own_baselines": True},
        },
        {
            "sweep.spec.gates[0]": "must be unset with tickets, which have a criterion of their own",
            "sweep.spec.seeds": "recommend no point",
            "sweep.policy.early_stop": "must be unset with the strategy tickets",
            "sweep.policy.own_baselines": "must be unset with tickets, whose round 0 is the dense model",
        },
    ),
    "a step out of range": ({"tickets": {"step": 1}}, {"sweep.spec.tickets.step": "must be from 0.01 to 0.99, got 1"}),
    "no control beside one": (
        {"tickets": {"controls": ["NONE", "RANDOM"]}},
        {"sweep.spec.tickets.controls": "must be the only value"},
    ),
    "a transfer density that no round has": (
        {"tickets": {"transfer_density": 0.33}},
        {"sweep.spec.tickets.transfer_density": "got 0.33; the nearest is 0.3"},
    ),
    "tasks of the transfer": (
        {"tickets": {"transfer_sources": ["sst2", "mrpc"], "table_tasks": ["sst"]}},
        {
            "sweep.spec.tickets.transfer_sources": "must be unset without transfer_density",
            "sweep.spec.tickets.table_tasks": "must be one of sst2, got 'sst'; did you mean sst2?",
        },
    ),
    "a point that is no task": (
        {"points": [{"max_steps": 3}, {"task": "sst2"}, {"task": "mrpc", "seed": 1}]},
        {
            "sweep.spec.points[0]": "must have a task with tickets",
            "sweep.spec.points[1].task": "must be a task that the study does not have yet",
            "sweep.spec.points[2].seed": "must be set for all runs",
        },
    ),
    "training of a point that is out of range": (
        {"points": [{"task": "mrpc", "learning_rate": 7}]},
        {"sweep.spec.points[0].learning_rate": "must be"},
    ),
    "a value that is null": (
        {"axes": [axis("density", 0.8), axis("seed", 0, None)]},
        {"sweep.spec.axes[1].values[1]": "must be a value with tickets, got null"},
    ),
    "more steps than fit": (
        {"points": [{"task": "mrpc", "max_steps": 2**70}]},
        {"sweep.spec.points[0].max_steps": "must be a whole number that fits"},
    ),
    "far too many runs": (
        {
            "tickets": {"step": 0.01},
            "axes": [axis("density", *(n / 100 for n in range(1, 99))), axis("seed", *range(100))],
        },
        {"sweep.spec.axes": "must be at most 1,000 runs, got 9800"},
    ),
    "too many runs": (
        {"axes": [axis("density", 0.1), axis("seed", *range(80))]},
        {"sweep.spec.axes": "must be at most 1,000 runs, got 1120; use fewer values"},
    ),
    "a rewind of less than a step": (
        {"base": BASE | {"locked_mask": {"rewind": 0.01}, "training": {"max_steps": 20}}},
        {"sweep.spec.base.locked_mask.rewind": "must be at least one of the 20 steps, and leave one to train"},
    ),
    "a rewind out of range": (
        {"base": BASE | {"locked_mask": {"rewind": 1}}},
        {"sweep.spec.base.locked_mask.rewind": "must be"},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_right_is_refused_at_its_place(gym: Gym, case: str) -> None:
    given, expected = REFUSED[case]
    found = await gym.refused(**ROUNDS | given)
    for field, part in expected.items():
        assert part in found.get(field, ""), found
    assert found.keys() == expected.keys()


async def test_the_server_must_be_able_to_read_the_data(db: Database, executor: ScriptedExecutor) -> None:
    found = await Gym(db, executor, roots=Roots()).refused(
        **ROUNDS | {"points": [{"task": "masked-lm", "train": "/no/where.txt", "validation": "/no/where.txt"}]}
    )
    assert set(found) == {"sweep.spec.points[0].train", "sweep.spec.points[0].validation"}
