"""Checks of what a job may set: the rules of `mvprune.spec.rules` for a message, and what only a message can break."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mvprune.data.tasks import Task
from mvprune.spec.annotations import bound_of
from mvprune.spec.fields import is_duration
from mvprune.spec.given import options_of
from mvprune.spec.messages import field_of
from mvprune.spec.parameter import AUTO
from mvprune.spec.parameters import METHODS
from mvprune.spec.problem import Problem
from mvprune.spec.rules import problems, problems_with_steps
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation, bad

_CHOICES = ("train", "none")  # sources of a teacher and a baseline that name nothing


def check_options(spec: job_pb2.CompressionSpec, task: Task | None, *, in_sweep: bool = False) -> Iterator[Violation]:
    """All rules that need neither the model nor the number of steps. Where the task is known, the method is too.

    Args:
        task: None where it is not known.
        in_sweep: whether the job is a point of a sweep.
    """
    method = str(spec.WhichOneof("method") or "")
    yield from _check_sources(spec)
    facts = None if method == AUTO else METHODS.get(method)
    found = problems(options_of(spec), facts, task, in_sweep=in_sweep)
    yield from (_violation(problem, spec) for problem in found)


def check_steps(spec: job_pb2.CompressionSpec, steps: int) -> Iterator[Violation]:
    """The rules about the number of steps of a job with a method."""
    method = str(spec.WhichOneof("method"))
    found = problems_with_steps(options_of(spec), METHODS[method], steps)
    yield from (_violation(problem, spec) for problem in found)


def check_numbers(field: str, message: Any) -> Iterator[Violation]:
    """Numbers and durations of a message that are set, and outside the bounds of the contract."""
    for found, value in message.ListFields():
        bound = bound_of(found)
        if bound is None:
            continue
        number = value.seconds + value.nanos / 1e9 if is_duration(found) else value
        if number not in bound:
            yield bad(f"{field}.{found.name}", f"{number:g} s" if is_duration(found) else value, str(bound))


def _violation(problem: Problem, spec: job_pb2.CompressionSpec) -> Violation:
    method, option = str(spec.WhichOneof("method") or ""), problem.option
    if option == "baseline":
        path = f"spec.baseline.{spec.baseline.WhichOneof('source')}"
    else:
        path = f"spec.{method}.schedule" if option == "schedule" else field_of(option, method)
    return Violation(f"job.{path.removesuffix('.source')}", problem.text)


def _check_sources(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """Sources of a teacher, a baseline or a mask that are there and say nothing."""
    for name in ("teacher", "baseline"):
        holder = getattr(spec, name)
        source = holder.WhichOneof("source")
        if source in _CHOICES and not getattr(holder, source):
            yield bad(f"job.spec.{name}.{source}", "false", "true or unset")
    if spec.start_artifact:
        yield bad("job.spec.start_artifact", spec.start_artifact, "unset; the server sets it to that of start_from")
    if spec.locked_mask.mask_from.artifact:
        rule = "unset; the server sets it to the artifact of the job"
        yield bad("job.spec.locked_mask.mask_from.artifact", spec.locked_mask.mask_from.artifact, rule)
