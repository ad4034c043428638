"""What the watchdog decides about a live attempt, over every state of job, attempt, process and result."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import LIVE_ATTEMPTS, AttemptState, JobState
from mvprune_service.domain.retries import Failure
from mvprune_service.domain.watching import REPORT_US, Facts, Fail, Offer, Process, Result, Silence, Step, decide
from mvprune_service.executors.base import Observation, Phase

NOW, LEASE = 1_000_000_000, 15_000_000
FACTS = Facts(
    job=JobState.RUNNING,
    attempt=AttemptState.RUNNING,
    now=NOW,
    lease_us=LEASE,
    amnesty_until=0,
    start_deadline_us=NOW,
    refusal="",
    start_us=NOW - 100,
    lease_expire_us=NOW - 1,
    ran_us=0,
    max_runtime_us=None,
    cancel_by_us=NOW,
)
NOTHING, FOUND, DAMAGED = Result(), Result("ab"), Result(damage="torn")
PROCESSES = [
    *(Process(Observation(phase)) for phase in Phase),
    *(Process(Observation(phase), over) for phase in (Phase.EXITED, Phase.GONE) for over in (REPORT_US - 1, REPORT_US)),
]
OVER = [process for process in PROCESSES if process.over_us == REPORT_US]


def end(facts: Facts, process: Process, result: Result) -> tuple[list[Step], Step | Offer | Fail | Silence]:
    """Answers what is asked until something is decided: the questions, and the decision."""
    asked: list[Step] = []
    while True:
        step = decide(facts)
        if step is Step.OBSERVE:
            facts = replace(facts, process=process)
        elif step is Step.LOOK:
            facts = replace(facts, result=result)
        elif step is Step.STOP:
            facts = replace(facts, stop_sent=True)
        else:
            return asked, step
        assert step not in asked, "asked twice"
        asked.append(step)


def lost(process: Process) -> Fail:
    how = process.seen.phase.value.lower()
    return Fail(Failure(FailureReason.WORKER_LOST, f"the worker disappeared ({how})", lost=True))


CORRUPT = Fail(Failure(FailureReason.ARTIFACT_CORRUPT, "torn"))
EVERY = list(itertools.product(LIVE_ATTEMPTS, PROCESSES, (NOTHING, FOUND, DAMAGED)))


@pytest.mark.parametrize("job", sorted(set(JobState) - {"STARTING", "RUNNING", "CANCELLING"}))
def test_other_jobs_are_left_alone(job: JobState) -> None:
    for attempt, process, result in EVERY:
        assert end(replace(FACTS, job=job, attempt=attempt), process, result) == ([], Step.WAIT)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("amnesty", [False, True])
@pytest.mark.parametrize("refusal", ["", "no"])
def test_an_attempt_that_starts(late: bool, amnesty: bool, refusal: str) -> None:
    for attempt, process, result in EVERY:
        facts = replace(
            FACTS,
            job=JobState.STARTING,
            attempt=attempt,
            start_deadline_us=NOW - late,
            amnesty_until=NOW if amnesty else 0,
            refusal=refusal,
        )
        is_asked = attempt is AttemptState.SUBMITTED
        is_over, is_late = is_asked and process in OVER, late and not amnesty
        expected: Step | Offer | Fail
        if result is not NOTHING and (is_over or is_late):
            expected = Offer("ab") if result is FOUND else CORRUPT
        elif is_over:
            expected = lost(process)
        elif is_late:
            waits = not is_asked or process.seen.phase in (Phase.PENDING, Phase.UNKNOWN)
            failure = Failure(FailureReason.START_TIMEOUT, refusal, counts=bool(refusal) or not waits)
            expected = Fail(failure, stop=True)
        else:
            expected = Step.WAIT
        asked = [Step.OBSERVE] * is_asked + [Step.LOOK] * (is_over or is_late)
        assert end(facts, process, result) == (asked, expected)


@pytest.mark.parametrize("lease", [None, 0, NOW - 1, NOW, NOW + 2 * LEASE, NOW + 2 * LEASE + 1])
@pytest.mark.parametrize("amnesty", [False, True])
@pytest.mark.parametrize("limit", [None, 150, 149])
def test_an_attempt_that_runs(lease: int | None, amnesty: bool, limit: int | None) -> None:
    for attempt, process, result in EVERY:
        facts = replace(
            FACTS,
            attempt=attempt,
            lease_expire_us=lease,
            amnesty_until=NOW if amnesty else 0,
            ran_us=50,  # 150 with this attempt
            max_runtime_us=limit,
        )
        found = end(facts, process, result)
        if limit != 149 and (amnesty or lease in (NOW, NOW + 2 * LEASE)):
            assert found == ([], Step.WAIT)
        elif result is FOUND:
            assert found == ([Step.LOOK], Offer("ab"))
        elif result is DAMAGED:
            assert found == ([Step.LOOK], CORRUPT)
        elif limit == 149:
            assert found == ([Step.LOOK], Fail(Failure(FailureReason.MAX_RUNTIME), stop=True))
        else:
            assert found == ([Step.LOOK, Step.OBSERVE], lost(process) if process in OVER else Step.WAIT)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_job_that_is_being_cancelled(is_late: bool) -> None:
    for attempt, process, result in EVERY:
        facts = replace(FACTS, job=JobState.CANCELLING, attempt=attempt, cancel_by_us=NOW - LEASE - is_late)
        asked, found = end(facts, process, result)
        runs = attempt is AttemptState.RUNNING
        expected = [Step.OBSERVE] if runs and not is_late else [Step.STOP, Step.OBSERVE]
        if process in OVER or (process.seen.phase is Phase.PENDING and not runs):
            assert asked == [*expected, Step.LOOK]
            assert found == {NOTHING: Step.CANCELLED, FOUND: Offer("ab"), DAMAGED: CORRUPT}[result]
        else:
            assert (asked, found) == (expected, Step.WAIT)


def test_a_lost_process_is_described() -> None:
    for seen, words in (
        (Observation(Phase.EXITED, 137), "exit code 137"),
        (Observation(Phase.EXITED, 1, "node lost"), "exit code 1: node lost"),
        (Observation(Phase.GONE, detail="no such actor"), "gone: no such actor"),
    ):
        _, found = end(FACTS, Process(seen, REPORT_US), NOTHING)
        assert found == Fail(Failure(FailureReason.WORKER_LOST, f"the worker disappeared ({words})", lost=True))


def test_a_process_that_no_node_had_room_for_uses_up_no_attempt() -> None:
    waiting = replace(FACTS, job=JobState.STARTING, attempt=AttemptState.SUBMITTED, start_deadline_us=NOW + LEASE)
    gave_up = Process(Observation(Phase.EXITED, detail="no room", started=False))
    assert end(waiting, gave_up, NOTHING)[1] == Fail(Failure(FailureReason.START_TIMEOUT, counts=False))


def test_a_worker_that_runs_for_40_seconds_without_a_call_is_shown() -> None:
    starting = replace(FACTS, job=JobState.STARTING, attempt=AttemptState.SUBMITTED, start_deadline_us=NOW + LEASE)
    runs = Process(Observation(Phase.RUNNING), running_us=40_000_000)
    words = "the worker has run for 40 s and has not called the server; "
    assert end(starting, runs, NOTHING)[1] == Silence(f"{words}it has written nothing")
    assert end(starting, replace(runs, last_line="hm"), NOTHING)[1] == Silence(f"{words}its last line: hm")
    for facts, process in (
        (starting, replace(runs, running_us=39_999_999)),
        (starting, replace(runs, seen=Observation(Phase.PENDING))),
        (replace(starting, refusal="no"), runs),
        (FACTS, runs),
    ):
        assert end(facts, process, NOTHING)[1] is Step.WAIT
