"""Checks of what a job may set: method, training, distillation. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mvprune.common.suggestions import did_you_mean
from mvprune.data.tasks import Task
from mvprune.spec.vocabulary import METHOD_BOUNDS, METHODS, SCHEDULE_BOUNDS, Bound
from mvprune.v1 import job_pb2
from mvprune_service.api.errors import Violation

_WARMUP, _COOLDOWN = 0.1, 0.4  # the contract's defaults
_METHODS = tuple(field.name for field in METHODS)
_SCHEDULED = {field.name for field in METHODS if "schedule" in field.message_type.fields_by_name}
_CHOICES = ("train", "none")  # sources of a teacher that name nothing
_MAX_PATTERNS, _MAX_PATTERN = 64, 256


_TRAINING = {
    "max_steps": Bound(1, 10_000_000),
    "epochs": Bound(0, 1000, open_low=True),
    "batch_size": Bound(1, 4096),
    "learning_rate": Bound(0, 1, open_low=True),
    "weight_decay": Bound(0, 1),
    "max_length": Bound(8, 8192),
    "accumulation_steps": Bound(1, 4096),
    "evaluate_every": Bound(1, 10_000_000),
    "patience": Bound(1, 1_000_000),
    "learning_rate_growth": Bound(0, 2),
}
_TEACHER = {"temperature": Bound(0, 100, open_low=True), "alpha": Bound(0, 1), "hidden_states": Bound(0, 100)}


def bad(field: str, given: object, allowed: str) -> Violation:
    """A violation in the usual words."""
    return Violation(field, f"got {str(given)[:200]!r}; allowed: {allowed}")


def check_numbers(field: str, message: Any, bounds: Mapping[str, Bound]) -> Iterator[Violation]:
    """Numbers of a message that are set and out of their bounds."""
    for found, value in message.ListFields():
        if found.name in bounds and value not in bounds[found.name]:
            yield bad(f"{field}.{found.name}", value, str(bounds[found.name]))


def check_method(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """The method, its options, and which modules it is for."""
    method = spec.WhichOneof("method")
    if method is None:
        yield bad("job.spec.method", "", ", ".join(_METHODS))
    else:
        options = getattr(spec, method)
        yield from check_numbers(f"job.spec.{method}", options, METHOD_BOUNDS)
        if method in _SCHEDULED:
            yield from _check_schedule(f"job.spec.{method}.schedule", options.schedule, spec.training)
    yield from _check_patterns("job.spec.include", spec.include)
    yield from _check_patterns("job.spec.exclude", spec.exclude)


def check_training(training: job_pb2.Training, task: Task | None) -> Iterator[Violation]:
    """The fine-tuning settings; `task`: None where it is not known."""
    field = "job.spec.training"
    yield from check_numbers(field, training, _TRAINING)
    if training.HasField("max_steps") and training.HasField("epochs"):
        yield Violation(field, "max_steps and epochs both given; allowed: one, which decides the length")
    if training.HasField("batch_size") and training.accumulation_steps > training.batch_size > 0:
        yield bad(
            f"{field}.accumulation_steps", training.accumulation_steps, f"up to batch_size, {training.batch_size}"
        )
    if not training.HasField("evaluate_every"):
        needs = "evaluate_every together with it: a model is compared with those that were evaluated before"
        if training.HasField("patience"):
            yield bad(f"{field}.patience", training.patience, needs)
        if training.keep_best:
            yield bad(f"{field}.keep_best", "true", needs)
    if training.best_metric:
        if task is not None and training.best_metric not in task.metrics:
            allowed = f"the metrics of {task.name}: {', '.join(task.metrics)}"
            hint = did_you_mean(training.best_metric, task.metrics)
            yield bad(f"{field}.best_metric", training.best_metric, allowed + hint)
        if not (training.HasField("patience") or training.keep_best):
            yield bad(f"{field}.best_metric", training.best_metric, "patience or keep_best together with it")


def check_teacher(teacher: job_pb2.Teacher) -> Iterator[Violation]:
    """The distillation's own settings. The model and the job that it names are for others to look at."""
    field = "job.spec.teacher"
    yield from check_numbers(field, teacher, _TEACHER)
    source = teacher.WhichOneof("source")
    if source in _CHOICES and not getattr(teacher, source):
        yield bad(f"{field}.{source}", "false", "true, or left out")
    if teacher.none:
        for name in _TEACHER:
            if teacher.HasField(name):
                yield bad(f"{field}.{name}", getattr(teacher, name), "left out where there is no teacher")
    if teacher.revision and source != "model":
        yield bad(f"{field}.revision", teacher.revision, "only beside a model of the hub")


def _check_schedule(field: str, schedule: job_pb2.Schedule, training: job_pb2.Training) -> Iterator[Violation]:
    yield from check_numbers(field, schedule, SCHEDULE_BOUNDS)
    if schedule.shape == job_pb2.Schedule.ONE_SHOT:
        if schedule.HasField("cooldown"):
            yield bad(f"{field}.cooldown", schedule.cooldown, "none: one_shot prunes when the warm-up ends")
        return
    warmup = schedule.warmup if schedule.HasField("warmup") else _WARMUP
    cooldown = schedule.cooldown if schedule.HasField("cooldown") else _COOLDOWN
    steps = training.max_steps
    if warmup + cooldown >= 1:
        yield bad(field, warmup + cooldown, "warmup + cooldown below 1, so that steps are left to prune in")
    elif steps in _TRAINING["max_steps"] and warmup >= 0 and cooldown > 0:
        cool = round(cooldown * steps)
        if cool < 1 or round(warmup * steps) + cool >= steps:
            allowed = "a step to prune in and one at the target density; more steps, or other boundaries"
            yield bad(field, f"warmup {warmup:g} and cooldown {cooldown:g} of {steps} steps", allowed)


def _check_patterns(field: str, patterns: Sequence[str]) -> Iterator[Violation]:
    if len(patterns) > _MAX_PATTERNS:
        yield bad(field, f"{len(patterns)} patterns", f"at most {_MAX_PATTERNS}")
    for pattern in patterns:
        if not 1 <= len(pattern) <= _MAX_PATTERN or not pattern.isprintable() or " " in pattern:
            allowed = f"1 to {_MAX_PATTERN} printable characters without blanks, such as *.attention.*"
            yield bad(field, pattern, allowed)
