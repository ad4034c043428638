"""The method of a run that names none, by what lost least in measured runs: docs/submit.md, docs/results.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mvprune.data.tasks import Task
from mvprune.spec.parameters import METHODS, PARAMETERS
from mvprune.spec.rules import Given, problems, problems_with_steps

_OBERT, _SOFT_MOVEMENT = "obert", "soft_movement"
_FEW_EVENTS = {"events": 3, "first_event": 0.5, "gradients": 64}
"""The options of obert in runs in which it was measured: by default it takes more steps than a short run has."""
SHORT_EXAMPLES = 16_000
"""Examples, of all steps together, up to which obert lost least."""


class Choice(NamedTuple):
    """A method that was chosen.

    Attributes:
        method: its name.
        options: those of its options that differ from its defaults, where they are not given.
        reason: one sentence on it; "" where nothing is pruned.
    """

    method: str
    options: Mapping[str, Any]
    reason: str


def choose_method(given: Given, task: Task, steps: int) -> Choice:
    """The method of a run of which it is not given.

    Args:
        given: the options that are set, as `mvprune.spec.rules` takes them, with those of methods. The method has all
            of them.
        steps: of the pruning; 0: they are not known.
    """
    if given.get("density") == 1:
        return Choice(_SOFT_MOVEMENT, {}, "")
    examples = steps * given.get("batch_size", task.batch_size)
    is_short = 0 < examples <= SHORT_EXAMPLES
    wanted, other = (_OBERT, _SOFT_MOVEMENT) if is_short else (_SOFT_MOVEMENT, _OBERT)
    obstacles = _obstacles(wanted, given, task, steps)
    if obstacles and (others := _obstacles(other, given, task, steps)) < obstacles:
        obstacle = min(obstacles - others)
        return _choice(other, given, f"{wanted}, which {_why(is_short=is_short)}, is not possible with {obstacle}")
    unknown = "" if steps else "the steps are not known before the job reads its data, and "
    return _choice(wanted, given, f"{unknown}it {_why(is_short=is_short)}")


def _why(*, is_short: bool) -> str:
    examples = f"{SHORT_EXAMPLES:,} examples, 1,000 steps of 16"
    return f"loses least in runs of {'at most' if is_short else 'more than'} {examples}"


def _choice(method: str, given: Given, why: str) -> Choice:
    options = {name: value for name, value in _options(method).items() if name not in given}
    return Choice(method, options, f"the method is {method}: {why}")


def _options(method: str) -> Mapping[str, Any]:
    return _FEW_EVENTS if method == _OBERT else {}


def _obstacles(method: str, given: Given, task: Task, steps: int) -> set[str]:
    """The options with which a method cannot run."""
    facts, wanted = METHODS[method], {**_options(method), **given}
    if method == _OBERT and given.get("shape", facts.shape) != facts.shape:  # the Fisher matrix again at every step
        return {"shape"}
    found = {name for name in given if (methods := PARAMETERS[name].methods) and method not in methods}
    found |= {problem.option for problem in problems(wanted, facts, task)}
    if steps and not found:
        found |= {f"{problem.option} in {steps:,} steps" for problem in problems_with_steps(wanted, facts, steps)}
    return found
