"""What a failed submission leads to, over every problem."""

from __future__ import annotations

import pytest

from mvprune_service.domain.dispatch import Problem, Reaction, react

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
