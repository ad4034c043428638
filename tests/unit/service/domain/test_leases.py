"""Which reports of workers count, over every state."""

from __future__ import annotations

import itertools

import pytest

from mvprune_service.domain.leases import (
    StaleLease,
    check_claimed,
    check_fence,
    is_claimed,
    is_renewed,
    version_problem,
)
from mvprune_service.domain.machine import AttemptState, JobState


def test_only_the_newest_attempt_with_the_current_token_may_report() -> None:
    for number, token in itertools.product((None, 1, 2, 3), (6, 7, 8)):
        if (number, token) == (2, 7):
            check_fence(number, token, newest=2, current=7)
        else:
            with pytest.raises(StaleLease, match=f"attempt {number} is over"):
                check_fence(number, token, newest=2, current=7)


@pytest.mark.parametrize("state", AttemptState)
def test_a_claim_is_new_repeated_or_anothers(state: AttemptState) -> None:
    runs = state == "RUNNING"
    assert is_claimed(state, "me", "me") is runs
    for holder in (None, "another"):
        if runs:
            with pytest.raises(StaleLease, match="another worker holds the lease"):
                is_claimed(state, holder, "me")
        else:
            assert not is_claimed(state, holder, "me")


@pytest.mark.parametrize("state", AttemptState)
def test_heartbeats_and_checkpoints_are_of_claimed_attempts(state: AttemptState) -> None:
    if state == "RUNNING":
        check_claimed(state)
    else:
        with pytest.raises(StaleLease, match="never claimed"):
            check_claimed(state)


@pytest.mark.parametrize("state", JobState)
def test_heartbeats_extend_the_lease_until_there_is_a_result(state: JobState) -> None:
    assert is_renewed(state) is (state in ("RUNNING", "CANCELLING"))


@pytest.mark.parametrize(
    ("worker", "server", "works"),
    [
        ("1.4.2", "1.4.0", True),
        ("1.4", "1.4.0.dev7+g1", True),
        ("0.0.0.dev682", "0.0.0.dev1", True),
        ("1.40.0", "1.4.0", False),
        ("2.4.0", "1.4.0", False),
        ("", "1.4.0", False),
        ("unknown", "1.4.0", False),
    ],
)
def test_versions(worker: str, server: str, works: bool) -> None:
    problem = version_problem(worker, server, "node-3")
    assert (problem == "") == works
    if not works:
        assert problem.startswith("mvprune of the worker on node-3 must have version 1.4, as the server (1.4.0), got ")
