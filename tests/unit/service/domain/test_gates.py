"""Gates: what is refused, what is observed, and what a job becomes that misses one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.service.conftest import Jobs

from mvprune.data.tasks import get_task
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service.api.checks.policies import check_gates
from mvprune_service.api.checks.specs import Checker
from mvprune_service.api.messages import mapping
from mvprune_service.clock import SECOND
from mvprune_service.db import leases, lifecycle, records, teachers
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.lifecycle import NewJob
from mvprune_service.domain import gates
from mvprune_service.domain.placement import Reserved
from mvprune_service.ids import ArtifactName, JobName

SHA = "ab" * 32
MANIFEST: dict[str, Any] = {
    "files": [{"path": "weights", "size_bytes": 900, "sha256": "cd" * 32, "media_type": ""}],
    "metrics": {"eval/accuracy": 0.85, "dense/accuracy": 0.87, "delta/accuracy": 0.85 - 0.87},
    "primary_metric": "accuracy",
    "accounting": {"density": 0.0301, "dense_bytes": 18_000, "sparse_bytes": 900},
}
Gates = Sequence[dict[str, Any]]


def evaluated(*asked: dict[str, Any], manifest: dict[str, Any] = MANIFEST) -> list[tuple[float | None, bool]]:
    """What was observed, and whether it passed."""
    results = gates.evaluate([job_pb2.Gate(**gate) for gate in asked], gates.observations(manifest, 100))
    return [(one.observed if one.HasField("observed") else None, one.passed) for one in results]


@pytest.mark.parametrize(
    ("metric", "observed"),
    [("eval/accuracy", 0.85), ("bytes", 1000), ("size_ratio", 18), ("density", 0.0301)],
)
def test_a_bound_is_reached_or_not(metric: str, observed: float) -> None:
    less, more = observed * 0.99, observed * 1.01
    asked = [{"metric": metric, side: bound} for side in ("min", "max") for bound in (less, observed, more)]
    assert [passed for _, passed in evaluated(*asked)] == [True, True, False, False, True, True]
    assert {seen for seen, _ in evaluated(*asked)} == {observed}


def test_a_difference_is_compared_as_it_is_meant() -> None:
    assert MANIFEST["metrics"]["delta/accuracy"] < -0.02  # by a rounding error
    assert evaluated({"metric": "delta/accuracy", "min": -0.02})[0][1]
    assert not evaluated({"metric": "delta/accuracy", "min": -0.0199})[0][1]


def test_what_is_not_known_is_not_passed() -> None:
    asked = [{"metric": name, "max": 1.0} for name in ("latency_ratio", "eval/f1", "density", "size_ratio")]
    empty = {**MANIFEST, "accounting": {}, "metrics": {"eval/f1": math.nan}}
    observed = evaluated(*asked, manifest=empty)
    assert observed[0] == observed[2] == observed[3] == (None, False)
    assert math.isnan(observed[1][0] or 0)
    assert not observed[1][1]


def test_a_measured_latency_is_a_metric() -> None:
    measured = {**MANIFEST, "metrics": {"latency_ratio": 2.5}}
    assert evaluated({"metric": "latency_ratio", "min": 2}, manifest=measured) == [(2.5, True)]


def test_the_outcome_in_words() -> None:
    asked = [job_pb2.Gate(metric="density", max=0.03), job_pb2.Gate(metric="bytes", max=1e7)]
    results = gates.evaluate(asked, gates.observations(MANIFEST, 100))
    assert gates.outcome(results) == "1 of 2 passed; missed: density is 0.0301, at most 0.03 was asked for"
    assert gates.outcome(results[1:]) == "1 of 1 passed"


@pytest.mark.parametrize("fails", [(), (0,), (1,), (0, 1)])
def test_only_a_missed_gate_with_fail_job_fails_the_job(fails: tuple[int, ...]) -> None:
    bounds = {"density": 0.03, "bytes": 1e7}  # the first is missed
    asked = [job_pb2.Gate(metric=name, max=most, fail_job=i in fails) for i, (name, most) in enumerate(bounds.items())]
    found = gates.failure(gates.evaluate(asked, gates.observations(MANIFEST, 100)))
    missed = "the result misses a gate: density is 0.0301, at most 0.03 was asked for"
    assert found == (missed if 0 in fails else None)


def refused(asked: Gates, *, task: str = "squad", density: float = 0.1, metric: str = "") -> dict[str, str]:
    job = job_pb2.Job(spec={"target_density": density}, policy={"gates": asked})
    return dict(check_gates(job, get_task(task, metric)))


def test_gates_that_are_fine() -> None:
    asked: Gates = [
        {"metric": "eval/f1", "min": 0.8},
        {"metric": "eval/f1", "max": 1.0, "fail_job": True},
        {"metric": "delta/exact_match", "min": -0.02},
        {"metric": "dense/f1", "min": 0},
        {"metric": "bytes", "max": 1e7},
        {"metric": "size_ratio", "min": 20},
        {"metric": "density", "max": 0.03},
        {"metric": "latency_ratio", "min": 2},
        {"metric": "above_constant", "min": 0.1},
    ]
    assert refused(asked) == {}
    assert refused([{"metric": "eval/perplexity", "max": 12}], task="wikitext-2") == {}
    assert refused([{"metric": "above_constant", "min": 300}], task="wikitext-2") == {}
    assert refused([{"metric": "eval/pearson", "min": -0.5}], task="stsb") == {}
    macro: Gates = [{"metric": "delta/f1_macro", "min": -0.01}, {"metric": "eval/accuracy", "min": 0.9}]
    assert refused(macro, task="sst2", metric="f1_macro") == {}
    assert "job.policy.gates[0].metric" in refused(macro, task="sst2")


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ([{"metric": "eval/f2", "min": 0.5}], "[0].metric", "must be one of bytes, size_ratio, density"),
        ([{"metric": "f1", "min": 0.5}], "[0].metric", "eval/, delta/, dense/ with exact_match, f1"),
        ([{"metric": "", "min": 0.5}], "[0].metric", "''"),
        ([{"metric": "above_constnt", "min": 0}], "[0].metric", "'above_constnt'; did you mean above_constant?"),
        ([{"metric": "eval/above_const", "min": 0}], "[0].metric", "'eval/above_const'; did you mean above_constant?"),
        ([{"metric": "delta/exactmatch", "min": 0}], "[0].metric", "; did you mean delta/exact_match?"),
        ([{"metric": "delta/bytes", "min": 0.5}], "[0].metric", "'delta/bytes'"),
        ([{"metric": "bytes", "max": 1}, {"metric": "density"}], "[1]", "must be bounded by min or max"),
        ([{"metric": "eval/f1", "min": math.nan}], "[0].min", "must be a finite number, got nan"),
        ([{"metric": "bytes", "max": math.inf}], "[0].max", "got inf"),
        (
            [{"metric": "eval/f1", "min": 80}],
            "[0].min",
            "from -1 to 1, got 80.0; it is a fraction, not percent",
        ),
        ([{"metric": "above_constant", "min": 10}], "[0].min", "from -1 to 1, got 10.0; it is a fraction"),
        ([{"metric": "bytes", "max": 1}, {"metric": "bytes", "max": 2}], "[1].metric", "must be given once with max"),
    ],
)
def test_gates_that_are_refused(asked: Gates, field: str, words: str) -> None:
    found = refused(asked)
    assert list(found) == [f"job.policy.gates{field}"]
    assert words in found[f"job.policy.gates{field}"]


def test_a_job_that_prunes_nothing_has_no_dense_model_beside_it() -> None:
    assert refused([{"metric": "eval/f1", "min": 0.5}], density=1.0) == {}
    assert list(refused([{"metric": "delta/f1", "min": 0}], density=1.0)) == ["job.policy.gates[0].metric"]


def test_gates_are_among_what_a_submit_checks(tiny: Any) -> None:
    job = job_pb2.Job(spec={"model": "tiny-bert", "task": "sst3"}, policy={"gates": [{"metric": "f9"}]})
    checker = Checker(job, "", Roots(models=tiny.models, allowed=()))
    checker.check()
    fields = dict(checker.violations)
    assert "job.policy.gates[0]" in fields
    assert "job.policy.gates[0].metric" not in fields, "which metrics there are is not known: the task is not"


async def offered(db: Database, jobs: Jobs, *asked: dict[str, Any]) -> Any:
    """A job with gates whose worker has offered a result."""
    await jobs.create(policy=job_pb2.ExecutionPolicy(gates=[job_pb2.Gate(**gate) for gate in asked]))
    job = await jobs.get()
    await db.write(leases.schedule, job.uid, Reserved(1, 0, 0), executor="x", start_timeout_us=60 * SECOND)
    live = await jobs.live()
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=15 * SECOND)
    await db.write(leases.offer, fence, SHA, actor="worker")
    return await jobs.live()


async def details_of_the_last_event(db: Database, jobs: Jobs) -> dict[str, str]:
    job = await jobs.get()
    rows = await db.read(records.events_of, job.uid, job.last_sequence - 1, 10)
    assert len(rows) == 1
    details: dict[str, str] = rows[0].details
    return details


async def test_a_missed_gate_is_recorded(db: Database, jobs: Jobs) -> None:
    live = await offered(db, jobs, {"metric": "eval/accuracy", "min": 0.9}, {"metric": "bytes", "max": 1e7})
    assert not mapping.job(await jobs.get()).gate_results
    assert await db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 100)
    job = mapping.job(await jobs.get())
    assert job_pb2.Job.State.Name(job.state) == "SUCCEEDED"
    assert job.artifact.endswith(SHA)
    assert list(job.gate_results) == [
        job_pb2.GateResult(gate={"metric": "eval/accuracy", "min": 0.9}, observed=0.85, passed=False),
        job_pb2.GateResult(gate={"metric": "bytes", "max": 1e7}, observed=1000, passed=True),
    ]
    told = (await details_of_the_last_event(db, jobs))["gates"]
    assert told == "1 of 2 passed; missed: eval/accuracy is 0.85, at least 0.9 was asked for"


async def test_a_missed_gate_that_fails_the_job(db: Database, jobs: Jobs) -> None:
    asked = {"metric": "eval/accuracy", "min": 0.9, "fail_job": True}
    live = await offered(db, jobs, asked, {"metric": "bytes", "max": 1e7, "fail_job": True})
    assert not await db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 100)
    row = await jobs.get()
    job = mapping.job(row)
    assert job_pb2.Job.State.Name(job.state) == "FAILED"
    assert row.attempts_left == 1, "it is not tried again"
    assert job.failure.reason == job_pb2.Failure.GATE_FAILED
    assert job.failure.message == "the result misses a gate: eval/accuracy is 0.85, at least 0.9 was asked for"
    assert [result.passed for result in job.gate_results] == [False, True]
    assert not job.artifact
    assert not job.metrics
    assert await db.read(records.artifact_named, ArtifactName("p", SHA)) is None
    assert await jobs.events() == ["JOB_CREATED", "SCHEDULE", "CLAIM", "OFFER", "FAIL"]
    assert (await details_of_the_last_event(db, jobs))["reason"] == "GATE_FAILED"
    assert not await db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 100), "once is enough"

    def retry(tx: Tx) -> Any:
        found = lifecycle.lock_job_named(tx, JobName("p", "a"))
        assert found is not None
        return lifecycle.retry(tx, found, actor="test")

    assert not mapping.job(await db.write(retry)).gate_results, "those of a new result are not known yet"


async def test_a_gate_that_fails_the_job_may_pass(db: Database, jobs: Jobs) -> None:
    live = await offered(db, jobs, {"metric": "eval/accuracy", "min": 0.8, "fail_job": True})
    assert await db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 100)
    assert (await details_of_the_last_event(db, jobs))["gates"] == "1 of 1 passed"


async def test_a_cancelled_job_with_a_result_that_is_none(db: Database, jobs: Jobs) -> None:
    live = await offered(db, jobs, {"metric": "eval/accuracy", "min": 0.9, "fail_job": True})
    await jobs.cancel()
    assert not await db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 100)
    job = await jobs.get()
    assert (job.state, job.artifact_sha256) == ("CANCELLED", None)


async def test_the_notes_of_a_result_are_those_of_its_job(db: Database, jobs: Jobs) -> None:
    live = await offered(db, jobs, {"metric": "above_constant", "min": 0.1})
    metrics = {**MANIFEST["metrics"], "above_constant": 0.02}
    noted = {**MANIFEST, "metrics": metrics, "notes": ["near a constant answer", "x" * 2000, *map(str, range(99))]}
    await db.write(leases.publish, live.job.uid, live.attempt.uid, noted, 100)
    job = mapping.job(await jobs.get())
    assert (job.notes[0], len(job.notes[1]), len(job.notes)) == ("near a constant answer", 1000, 50)
    [result] = job.gate_results
    assert (result.observed, result.passed) == (0.02, False)


async def test_a_job_without_gates_says_nothing_of_them(db: Database, jobs: Jobs) -> None:
    live = await offered(db, jobs)
    await db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 100)
    assert not mapping.job(await jobs.get()).gate_results
    assert "gates" not in await details_of_the_last_event(db, jobs)


async def test_a_teacher_has_no_gates(db: Database) -> None:
    spec = job_pb2.CompressionSpec(model="m", task="sst2", target_density=0.1, teacher={"train": True})
    policy = job_pb2.ExecutionPolicy(max_attempts=3, gates=[{"metric": "delta/accuracy", "min": 0, "fail_job": True}])
    student = NewJob("p", "s", spec, policy, creator="test")
    teacher = await db.write(teachers.get_or_create_teacher, student, "teacher", actor="test")
    assert job_pb2.ExecutionPolicy.FromString(teacher.policy) == job_pb2.ExecutionPolicy(max_attempts=3)
