"""Rules on the options of kinds of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mvprune.data.kinds.classification.weights import weights_problems
from mvprune.data.tasks import TASKS, Task
from mvprune.sources.sentence_transformers import POOLINGS
from mvprune.spec.problem import Problem, bad

_OF_KINDS = frozenset(name for each in TASKS.values() for name in each.kind.options)


def kind_problems(given: Mapping[str, Any], task: Task | None) -> Iterator[Problem]:
    """Options that only some kinds of task take, and those that some cannot have."""
    if task is None:
        return
    for name in sorted((given.keys() & _OF_KINDS) - task.kind.options):
        if given[name] not in ("", None) and given[name] is not False:
            able = ", ".join(dict.fromkeys(each.kind.name for each in TASKS.values() if name in each.kind.options))
            yield bad(name, given[name], f"unset for the task {task.name}; it is an option of {able}")
    if weights := given.get("class_weights"):
        yield from (Problem("class_weights", text) for text in weights_problems(weights))
    if (pooling := given.get("pooling")) not in ("", None, *POOLINGS):
        yield bad("pooling", pooling, f"one of {', '.join(POOLINGS)}")
    if task.kind.predicts_tokens and given.get("trim_vocabulary"):
        rule = f"false for the task {task.name}, whose models predict tokens of the whole vocabulary"
        yield bad("trim_vocabulary", "true", rule)
