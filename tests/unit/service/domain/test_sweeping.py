"""The life of a sweep over every (state × command), every state of a point, and every decision for a few points."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from mvprune.v1 import sweep_pb2
from mvprune_service.domain.machine import TERMINAL, JobState
from mvprune_service.domain.sweeping import (
    ENDED,
    LIVE,
    Decision,
    Facts,
    IllegalSweepCommand,
    PointState,
    Reason,
    SweepCommand,
    SweepState,
    decide,
    point_state,
    transition,
    with_late_result,
)

# Written out by hand from the design, not derived from the table under test.
LEGAL = {
    "ACTIVE": {"CANCEL": "CANCELLING", "PAUSE": "PAUSED", "RESUME": "ACTIVE", "RETRY": "ACTIVE", "EXTEND": "ACTIVE"},
    "PAUSED": {"CANCEL": "CANCELLING", "PAUSE": "PAUSED", "RESUME": "ACTIVE", "RETRY": "PAUSED", "EXTEND": "PAUSED"},
    "CANCELLING": {"CANCEL": "CANCELLING"},
    "SUCCEEDED": {"RETRY": "ACTIVE", "EXTEND": "ACTIVE"},
    "FAILED": {"RETRY": "ACTIVE", "EXTEND": "ACTIVE"},
    "CANCELLED": {"CANCEL": "CANCELLED", "RETRY": "ACTIVE"},
}
OF_JOB = {
    "QUEUED": "QUEUED",
    "STARTING": "RUNNING",
    "RUNNING": "RUNNING",
    "FINALIZING": "RUNNING",
    "CANCELLING": "RUNNING",
    "SUCCEEDED": "SUCCEEDED",
    "FAILED": "FAILED",
    "CANCELLED": "CANCELLED",
}
P = PointState


@pytest.mark.parametrize(("state", "command"), list(itertools.product(SweepState, SweepCommand)))
def test_every_state_and_command(state: SweepState, command: SweepCommand) -> None:
    expected = LEGAL[state.value].get(command.value)
    if expected is None:
        with pytest.raises(IllegalSweepCommand, match=f"{command.value} does not apply to a {state.value} sweep"):
            transition(state, command)
    else:
        assert transition(state, command).value == expected


def test_names_are_the_contracts() -> None:
    assert {state.value for state in SweepState} == set(sweep_pb2.Sweep.State.keys()) - {"STATE_UNSPECIFIED"}
    assert {state.value for state in PointState} == set(sweep_pb2.SweepPoint.State.keys()) - {"STATE_UNSPECIFIED"}


@pytest.mark.parametrize("job", [None, *JobState])
def test_the_state_of_a_point_in_every_case(job: JobState | None) -> None:
    for had_job, again, skipped, has_result in itertools.product((False, True), repeat=4):
        found = point_state(job=job, had_job=had_job, again=again, skipped=skipped, has_result=has_result)
        if again:
            expected = "PENDING"
        elif job is JobState.CANCELLED and skipped:  # it was stopped early
            expected = "SKIPPED"
        elif job is not None:
            expected = OF_JOB[job.value]
        elif has_result:
            expected = "SUCCEEDED"
        else:
            expected = "DELETED" if had_job else "SKIPPED" if skipped else "PENDING"
        assert found.value == expected
        assert again or (found in LIVE) == (job is not None and job not in TERMINAL)


def every_case() -> Iterator[Facts]:
    """All facts about sweeps of up to three points."""
    for count in range(1, 4):
        for states in itertools.product(PointState, repeat=count):
            points = dict(enumerate(states, 1))
            for state, most_failed, stops, used, complete, passes in itertools.product(
                SweepState, (None, 0, 1), (False, True), (False, True), (False, True), (False, True)[: 1 + (count < 3)]
            ):
                if state in (SweepState.ACTIVE, SweepState.CANCELLING) or count == 1:
                    yield Facts(
                        state=state,
                        points=points,
                        parallel=1 + (count == 3),
                        max_failed=most_failed,
                        stop_on_failure=stops,
                        is_budget_used=used,
                        is_complete=complete,
                        passes=passes,
                    )


def test_every_decision_keeps_the_promises() -> None:
    for facts in every_case():
        check(facts, decide(facts))


def check(facts: Facts, found: Decision) -> None:
    """What must be true of each decision."""
    of = {state: [number for number, own in facts.points.items() if own is state] for state in PointState}
    live, pending = of[P.QUEUED] + of[P.RUNNING], of[P.PENDING]
    if facts.state in ENDED or facts.state is SweepState.PAUSED:
        assert found == Decision(facts.state), "nothing is done for a sweep that has ended or is paused"
        return
    too_many = facts.max_failed is not None and len(of[P.FAILED]) > facts.max_failed
    assert set(found.create) <= set(pending)
    assert set(found.skip) <= set(pending)
    assert set(found.cancel) <= set(live)
    assert not set(found.create) & set(found.skip)
    assert len(found.create) + len(live) <= max(facts.parallel, len(live)), "too many at a time"
    assert not found.skip or found.skip_reason, "a point is skipped without a reason"
    if facts.state is SweepState.CANCELLING:
        assert found.state is (SweepState.CANCELLING if live else SweepState.CANCELLED)
        assert (sorted(found.cancel), found.skip) == (sorted(live), tuple(pending))
        assert found.skip_reason == Reason.CANCELLED
        return
    assert found.state in (SweepState.ACTIVE, SweepState.SUCCEEDED, SweepState.FAILED)
    stopped = too_many or facts.is_budget_used
    assert not (stopped and found.create), "a job is created though no job may be"
    assert bool(found.cancel) == bool(too_many and facts.stop_on_failure and live)
    if found.state in ENDED:
        assert not live
        assert not found.create
        assert set(found.skip) == set(pending)
        assert facts.is_complete or stopped
    else:
        assert live or pending or not facts.is_complete
        assert stopped or len(live) >= facts.parallel or bool(found.create) == bool(pending), "room is left unused"
    if found.state is SweepState.SUCCEEDED:
        assert of[P.SUCCEEDED]
        assert not too_many
    check_reason(facts, found, too_many=too_many)


def check_reason(facts: Facts, found: Decision, *, too_many: bool) -> None:
    """Why it is so."""
    states = set(facts.points.values())
    left_out = facts.is_budget_used and (bool(states & {P.PENDING, P.SKIPPED}) or not facts.is_complete)
    if too_many:
        assert found.reason == Reason.FAILURES
        assert found.state is not SweepState.SUCCEEDED
    elif found.state is SweepState.ACTIVE:
        assert found.reason in ("", Reason.BUDGET)
    elif left_out:
        assert found.reason == Reason.BUDGET, "points are missing because the budget was used"
    elif found.state is SweepState.FAILED:
        assert found.reason == Reason.NOTHING
    else:
        assert found.reason == ("" if facts.passes else Reason.MISSED)


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_a_sweep_that_is_carried_out_ends_with_every_point(parallel: int) -> None:
    points = dict.fromkeys(range(1, 8), PointState.PENDING)
    created = list[int]()
    for _ in range(30):
        facts = Facts(SweepState.ACTIVE, points, parallel, None, False, False, True, True)
        found = decide(facts)
        if found.state in ENDED:
            break
        created += found.create
        points |= dict.fromkeys(found.create, PointState.QUEUED)
        assert sum(state in LIVE for state in points.values()) <= parallel
        done = next(number for number, state in points.items() if state in LIVE)
        points[done] = PointState.SUCCEEDED
    assert created == list(range(1, 8)), "by number, each once"
    assert found.state is SweepState.SUCCEEDED


def test_a_late_result_changes_only_what_lacked_one() -> None:
    for state, reason, passes in itertools.product(ENDED, ("", *Reason), (False, True)):
        found = with_late_result(state, reason, passes=passes)
        if state is SweepState.CANCELLED or reason not in ("", Reason.BUDGET, Reason.NOTHING, Reason.MISSED):
            assert found == (state, reason)
    for passes, missed in ((True, ""), (False, Reason.MISSED)):
        assert with_late_result(SweepState.FAILED, Reason.NOTHING, passes=passes) == (SweepState.SUCCEEDED, missed)
        assert with_late_result(SweepState.SUCCEEDED, Reason.MISSED, passes=passes) == (SweepState.SUCCEEDED, missed)
        assert with_late_result(SweepState.SUCCEEDED, "", passes=passes) == (SweepState.SUCCEEDED, missed)
        budget = Reason.BUDGET
        assert with_late_result(SweepState.FAILED, budget, passes=passes) == (SweepState.SUCCEEDED, budget)


def test_a_late_result_lets_a_sweep_go_on_whose_strategy_has_more() -> None:
    natural = {(SweepState.FAILED, Reason.NOTHING), (SweepState.SUCCEEDED, ""), (SweepState.SUCCEEDED, Reason.MISSED)}
    for state, reason in itertools.product(ENDED, ("", *Reason)):
        found = with_late_result(state, reason, passes=True, has_more=True)
        without = with_late_result(state, reason, passes=True)
        assert found == ((SweepState.ACTIVE, "") if (state, reason) in natural else without)
