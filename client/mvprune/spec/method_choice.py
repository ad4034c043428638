"""The method of a run that names none, by what lost least in measured runs: docs/submit.md, docs/results.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mvprune.data.tasks import Task
from mvprune.spec.parameters import METHODS, PARAMETERS
from mvprune.spec.rules import Given, problems, problems_with_steps

OBERT, _SOFT_MOVEMENT = "obert", "soft_movement"
FEW_EVENTS = {"events": 3, "first_event": 0.5, "gradients": 64}
"""The options of obert in runs in which it was measured: by default it takes more steps than a short run has."""
SHORT_EXAMPLES = 32_000
"""Examples, of all steps together, up to which obert lost least: MiniLM in up to 1,000 steps of 32 on SST-2; MiniLM and
BERT-tiny in 300 of 16 on a similarity of two texts. BERT-tiny on SST-2 showed no difference."""
_SHORT = f"{SHORT_EXAMPLES:,} examples, 1,000 steps of 32"


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
    wanted, other, why = _SOFT_MOVEMENT, OBERT, f"loses least in runs of more than {_SHORT}"
    if not task.kind.has_labels:
        wanted, other, why = OBERT, _SOFT_MOVEMENT, "loses least where vectors are learned from the given model"
    elif 0 < examples <= SHORT_EXAMPLES:
        wanted, other, why = OBERT, _SOFT_MOVEMENT, f"loses least in runs of at most {_SHORT}"
    elif not examples:
        why += ", and the steps are not known before the job reads its data"
    obstacles = _obstacles(wanted, given, task, steps)
    if obstacles and (others := _obstacles(other, given, task, steps)) < obstacles:
        obstacle = min(obstacles - others)
        return _choice(other, given, f"{wanted}, which {why}, is not possible with {obstacle}")
    return _choice(wanted, given, f"it {why}")


def _choice(method: str, given: Given, why: str) -> Choice:
    options = {name: value for name, value in _options(method).items() if name not in given}
    return Choice(method, options, f"the method is {method}: {why}")


def _options(method: str) -> Mapping[str, Any]:
    return FEW_EVENTS if method == OBERT else {}


def _obstacles(method: str, given: Given, task: Task, steps: int) -> set[str]:
    """The options with which a method cannot run."""
    facts, wanted = METHODS[method], {**_options(method), **given}
    if method == OBERT and given.get("shape", facts.shape) != facts.shape:  # the Fisher matrix again at every step
        return {"shape"}
    found = {name for name in given if (methods := PARAMETERS[name].methods) and method not in methods}
    found |= {problem.option for problem in problems(wanted, facts, task)}
    if steps and not found:
        found |= {f"{problem.option} in {steps:,} steps" for problem in problems_with_steps(wanted, facts, steps)}
    return found
