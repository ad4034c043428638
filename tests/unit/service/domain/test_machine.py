"""The state machine over every (state × command), and the failure table over the contract's vocabulary."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.domain.failures import RULES, FailureReason, Retry
from mvprune_service.domain.machine import (
    TERMINAL,
    TRANSITIONS,
    AttemptState,
    Command,
    IllegalTransition,
    JobState,
    mermaid,
    transition,
)

# Written out by hand from the design, not derived from the table under test.
LEGAL = {
    "QUEUED": {"SCHEDULE": "STARTING", "CANCEL": "CANCELLED", "FAIL": "FAILED"},
    "STARTING": {
        "CLAIM": "RUNNING",
        "OFFER": "FINALIZING",
        "REQUEUE": "QUEUED",
        "FAIL": "FAILED",
        "CANCEL": "CANCELLING",
    },
    "RUNNING": {"REQUEUE": "QUEUED", "OFFER": "FINALIZING", "FAIL": "FAILED", "CANCEL": "CANCELLING"},
    "FINALIZING": {"PUBLISH": "SUCCEEDED", "FAIL": "FAILED", "CANCEL": "CANCELLING"},
    "CANCELLING": {"CANCEL": "CANCELLING", "OFFER": "CANCELLING", "PUBLISH": "SUCCEEDED", "STOPPED": "CANCELLED"},
    "SUCCEEDED": {},
    "FAILED": {"RETRY": "QUEUED"},
    "CANCELLED": {"CANCEL": "CANCELLED", "RETRY": "QUEUED"},
}


@pytest.mark.parametrize(("state", "command"), list(itertools.product(JobState, Command)))
def test_every_state_and_command(state: JobState, command: Command) -> None:
    expected = LEGAL[state.value].get(command.value)
    if expected is None:
        with pytest.raises(IllegalTransition):
            transition(state, command)
    else:
        assert transition(state, command).value == expected


def test_every_live_state_leads_to_an_end() -> None:
    reachable = {
        state: {target for (source, _), target in TRANSITIONS.items() if source is state} for state in JobState
    }
    for state in set(JobState) - TERMINAL:
        seen, frontier = {state}, {state}
        while frontier:
            frontier = set().union(*(reachable[at] for at in frontier)) - seen
            seen |= frontier
        assert TERMINAL & seen


def test_names_are_the_contracts() -> None:
    assert {state.value for state in JobState} == set(job_pb2.Job.State.keys()) - {"STATE_UNSPECIFIED"}
    assert {state.value for state in AttemptState} == set(job_pb2.Attempt.State.keys()) - {"STATE_UNSPECIFIED"}
    assert {reason.value for reason in FailureReason} == set(job_pb2.Failure.Reason.keys()) - {"REASON_UNSPECIFIED"}


def test_failure_table_is_total() -> None:
    assert set(RULES) == set(FailureReason)
    assert all(rule.text for rule in RULES.values())


def test_the_documented_diagram_is_the_table() -> None:
    page = Path(__file__).parents[4] / "docs" / "architecture.md"
    assert f"```mermaid\n{mermaid()}\n```" in page.read_text()


def test_the_page_tells_every_failure() -> None:
    page = Path(__file__).parents[4] / "docs" / "architecture.md"
    told = {Retry.NEVER: "no", Retry.ALWAYS: "yes", Retry.SMALLER_BATCH: "in smaller passes"}
    told[Retry.UNLESS_REPEATED] = "unless it repeats"
    rows = [f"| `{reason}` | {told[rule.retry]} | {rule.text} |" for reason, rule in RULES.items()]
    assert "\n".join(rows) in page.read_text()
