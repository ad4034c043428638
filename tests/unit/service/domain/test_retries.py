"""What happens to a job when an attempt fails, over every state and reason."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.domain.failures import RULES, FailureReason
from mvprune_service.domain.machine import AttemptState, Command, JobState
from mvprune_service.domain.retries import (
    MOST_KILLS_AT_A_STEP,
    Failure,
    Kill,
    Tried,
    Verdict,
    earlier_kills,
    ran_us,
    smaller_factor,
    verdict,
)

# Written out by hand from the documents, not derived from the table under test.
ALWAYS = {"STORE_UNAVAILABLE", "WORKER_LOST", "START_TIMEOUT", "PREEMPTED", "DISK_FULL", "WRONG_VERSION"}
SMALLER = {"OUT_OF_MEMORY"}
KILL = Kill(signal.SIGKILL, "pruning", 120)
ELSEWHERE = (Kill(signal.SIGKILL, "pruning", 121), Kill(signal.SIGKILL, "dense", 120), Kill(15, "pruning", 120))
WORDS = "The trainer was killed by signal 9 (SIGKILL) after step 120 of pruning."


def tried(state: JobState = JobState.RUNNING, **values: Any) -> Tried:
    return Tried(**{"state": state, "number": 1, "attempts_left": 9, "factor": 1, "smaller": None} | values)


@pytest.mark.parametrize(("state", "reason"), list(itertools.product(JobState, FailureReason)))
def test_every_state_and_reason(state: JobState, reason: FailureReason) -> None:
    for left, smaller, kill, counts, lost in itertools.product(
        (0, 1), (None, 4), (None, KILL), (False, True), (False, True)
    ):
        found = verdict(
            tried(state, attempts_left=left, factor=2, smaller=smaller),
            Failure(reason, counts=counts, lost=lost, kill=kill),
        )
        with_smaller = reason in SMALLER and smaller is not None
        helps = reason in ALWAYS or with_smaller or kill is not None
        if state == "CANCELLING":
            expected, ended = "STOPPED", "CANCELLED"
        elif state in ("STARTING", "RUNNING") and (left or not counts) and helps:
            expected, ended = "REQUEUE", "LOST" if lost else "FAILED"
        else:
            expected, ended = "FAIL", "LOST" if lost else "FAILED"
        assert (found.command, found.attempt_state) == (expected, ended)
        assert found.message == found.cause == RULES[reason].text
        assert found.attempts_left == left + (not counts)
        assert found.factor == (4 if expected == "REQUEUE" and with_smaller else 2)


def test_attempts_are_further_and_further_apart() -> None:
    waits = [verdict(tried(number=n), Failure(FailureReason.WORKER_LOST)).back_off_us for n in (1, 2, 3, 6, 7, 8, 99)]
    assert waits == [5 * SECOND, 10 * SECOND, 20 * SECOND, 160 * SECOND, 300 * SECOND, 300 * SECOND, 300 * SECOND]


def test_the_reporters_words_are_kept() -> None:
    for reason in FailureReason:
        found = verdict(tried(), Failure(reason, "gone"))
        assert found.cause == found.message == "gone"


def killed(*earlier: Kill, reason: FailureReason = FailureReason.TRAINER_KILLED, kill: Kill = KILL) -> Verdict:
    return verdict(tried(kills=earlier), Failure(reason, WORDS, kill=kill))


def test_the_same_death_at_the_same_step_too_often_is_the_jobs_own() -> None:
    for times in range(MOST_KILLS_AT_A_STEP - 1):
        assert killed(*[KILL] * times, *ELSEWHERE * 5).command is Command.REQUEUE
    found = killed(*[KILL] * (MOST_KILLS_AT_A_STEP - 1))
    assert found.command is Command.FAIL
    assert found.cause == WORDS
    assert found.message.startswith(f"{WORDS} 3 attempts ended so at this step; ")
    assert "batch size" in found.message
    assert "memory" in found.message


def test_deaths_at_other_steps_are_no_repetition() -> None:
    assert killed(*ELSEWHERE * 9).command is Command.REQUEUE
    assert killed(ELSEWHERE[0], KILL, ELSEWHERE[0], kill=ELSEWHERE[1]).command is Command.REQUEUE


def test_two_deaths_at_a_step_are_told_where_no_attempts_are_left() -> None:
    found = verdict(tried(attempts_left=0, kills=(KILL,)), Failure(FailureReason.TRAINER_KILLED, WORDS, kill=KILL))
    assert found.command is Command.FAIL
    assert "2 attempts ended so at this step" in found.message


def test_the_remedy_fits_the_signal() -> None:
    for number, word in ((signal.SIGBUS, "/dev/shm"), (signal.SIGXCPU, "ulimit"), (signal.SIGHUP, "what sends")):
        kill = Kill(number, "dense", 1)
        assert word in killed(kill, kill, kill=kill).message
    found = killed(KILL, KILL, reason=FailureReason.OUT_OF_MEMORY)
    assert (found.command, found.message) == (Command.FAIL, f"{WORDS} 3 attempts ended so at this step.")


def test_memory_that_runs_out_is_met_with_smaller_batches_first() -> None:
    kills = (KILL,) * (MOST_KILLS_AT_A_STEP - 1)
    found = verdict(tried(smaller=2, kills=kills), Failure(FailureReason.OUT_OF_MEMORY, WORDS, kill=KILL))
    assert (found.command, found.cause, found.factor) == (Command.REQUEUE, WORDS, 2)
    assert found.attempt_state is AttemptState.FAILED


@pytest.mark.parametrize(
    ("batch", "passes", "factor", "smaller"),
    [
        (8, 0, 1, 2),
        (8, 0, 4, 8),
        (8, 0, 8, None),
        (8, 2, 2, 4),
        (8, 2, 4, None),
        (1, 0, 1, None),
        (0, 0, 32, 64),
        (0, 0, 64, None),
        (4096, 0, 64, None),
    ],
)
def test_passes_are_halved_down_to_one_example(batch: int, passes: int, factor: int, smaller: int | None) -> None:
    spec = job_pb2.CompressionSpec(training={"batch_size": batch, "accumulation_steps": passes})
    assert smaller_factor(spec, factor) == smaller


def test_kills_count_since_the_user_last_asked() -> None:
    def told(*kills: Kill | None) -> Sequence[tuple[str, dict[str, str]]]:
        return [("REQUEUE", {"reason": "x"} | (kill.details if kill else {})) for kill in kills]

    events = [*told(KILL, None, ELSEWHERE[0]), ("RETRY", {}), *told(KILL)]
    assert earlier_kills(events) == [KILL, ELSEWHERE[0]]


def test_a_job_ran_in_this_attempt_and_those_before_it() -> None:
    assert ran_us(5, 10, 17) == 12
    assert ran_us(5, None, 17) == 5
