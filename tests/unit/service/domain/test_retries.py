"""What becomes of a job when an attempt fails, over every state and reason."""

from __future__ import annotations

import itertools
import signal

import pytest

from mvprune_service.domain.failures import RULES, FailureReason, Retry
from mvprune_service.domain.machine import Command, JobState
from mvprune_service.domain.retries import MOST_KILLS_AT_A_STEP, Kill, Verdict, verdict

KILL = Kill(signal.SIGKILL, "pruning", 120)
ELSEWHERE = (Kill(signal.SIGKILL, "pruning", 121), Kill(signal.SIGKILL, "dense", 120), Kill(15, "pruning", 120))
WORDS = "The trainer was killed by signal 9 (SIGKILL) after step 120 of pruning."


@pytest.mark.parametrize(("state", "reason"), list(itertools.product(JobState, FailureReason)))
def test_every_state_and_reason(state: JobState, reason: FailureReason) -> None:
    for attempts_left, can_shrink, kills in itertools.product((0, 1), (False, True), ((), (KILL,))):
        found = verdict(state, reason, "", attempts_left=attempts_left, can_shrink=can_shrink, kills=kills)
        retry = RULES[reason].retry
        helps = retry is Retry.ALWAYS or (retry is Retry.SMALLER_BATCH and can_shrink) or bool(kills)
        if state is JobState.CANCELLING:
            expected = Command.STOPPED
        elif state in (JobState.STARTING, JobState.RUNNING) and attempts_left and helps:
            expected = Command.REQUEUE
        else:
            expected = Command.FAIL
        assert found.command is expected
        assert found.message == RULES[reason].text
        assert found.smaller == (expected is Command.REQUEUE and retry is Retry.SMALLER_BATCH and can_shrink)


def killed(*earlier: Kill, reason: FailureReason = FailureReason.TRAINER_KILLED, kill: Kill = KILL) -> Verdict:
    return verdict(JobState.RUNNING, reason, WORDS, attempts_left=9, can_shrink=False, kills=(kill, *earlier))


def test_the_same_death_at_the_same_step_too_often_is_the_jobs_own() -> None:
    for times in range(MOST_KILLS_AT_A_STEP - 1):
        assert killed(*[KILL] * times, *ELSEWHERE * 5).command is Command.REQUEUE
    found = killed(*[KILL] * (MOST_KILLS_AT_A_STEP - 1))
    assert found.command is Command.FAIL
    assert found.message.startswith(f"{WORDS} 3 attempts ended so at this step; ")
    assert "batch size" in found.message
    assert "memory" in found.message


def test_deaths_at_other_steps_are_no_repetition() -> None:
    assert killed(*ELSEWHERE * 9).command is Command.REQUEUE
    assert killed(ELSEWHERE[0], KILL, ELSEWHERE[0], kill=ELSEWHERE[1]).command is Command.REQUEUE


def test_two_deaths_at_a_step_are_told_where_no_attempts_are_left() -> None:
    found = verdict(
        JobState.RUNNING, FailureReason.TRAINER_KILLED, WORDS, attempts_left=0, can_shrink=False, kills=(KILL, KILL)
    )
    assert found.command is Command.FAIL
    assert "2 attempts ended so at this step" in found.message


def test_the_remedy_fits_the_signal() -> None:
    for number, word in ((signal.SIGBUS, "/dev/shm"), (signal.SIGXCPU, "ulimit"), (signal.SIGHUP, "what sends")):
        kill = Kill(number, "dense", 1)
        assert word in killed(kill, kill, kill=kill).message
    found = killed(KILL, KILL, reason=FailureReason.OUT_OF_MEMORY)
    assert found == Verdict(Command.FAIL, f"{WORDS} 3 attempts ended so at this step.")


def test_memory_that_runs_out_is_met_with_smaller_batches_first() -> None:
    found = verdict(
        JobState.RUNNING,
        FailureReason.OUT_OF_MEMORY,
        WORDS,
        attempts_left=1,
        can_shrink=True,
        kills=(KILL,) * MOST_KILLS_AT_A_STEP,
    )
    assert found == Verdict(Command.REQUEUE, WORDS, smaller=True)
