"""Which attempts are submitted, and what a failed submission leads to, over every state and problem."""

from __future__ import annotations

import itertools

import pytest

from mvprune_service.domain.dispatch import Problem, Reaction, is_due, react
from mvprune_service.domain.machine import AttemptState, JobState


@pytest.mark.parametrize(("job", "attempt"), list(itertools.product(JobState, AttemptState)))
def test_created_attempts_of_starting_jobs_are_submitted(job: JobState, attempt: AttemptState) -> None:
    assert is_due(job, attempt) is ((job, attempt) == ("STARTING", "CREATED"))


BROKEN = "the server cannot launch it (KeyError): its log has more"


@pytest.mark.parametrize(
    ("problem", "text", "known", "expected"),
    [
        (Problem.REFUSED, "no image", None, Reaction("no image", raises=False)),
        (Problem.REFUSED, "no image", "other", Reaction("no image", raises=False)),
        (Problem.REFUSED, "no image", "no image", Reaction(None, raises=False)),
        (Problem.AWAY, "ExecutorUnavailable", None, Reaction(None, raises=True)),
        (Problem.AWAY, "ExecutorUnavailable", "other", Reaction(None, raises=True)),
        (Problem.BROKEN, "KeyError", None, Reaction(BROKEN, raises=True)),
        (Problem.BROKEN, "KeyError", "other", Reaction(BROKEN, raises=True)),
        (Problem.BROKEN, "KeyError", BROKEN, Reaction(None, raises=True)),
    ],
)
def test_every_problem(problem: Problem, text: str, known: str | None, expected: Reaction) -> None:
    assert react(problem, text, known) == expected
