"""Checks of what a job may set: method, training, distillation. Each yields its violations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mvprune.common.patterns import METHODS as RANKING
from mvprune.common.patterns import Pattern
from mvprune.common.structures import GATED
from mvprune.common.structures import METHODS as OF_STRUCTURE
from mvprune.common.suggestions import must_be_one_of
from mvprune.data.run_length import EVENTS, mask_interval_of
from mvprune.data.tasks import Task
from mvprune.spec.annotations import bound_of, default_of
from mvprune.spec.fields import METHODS, is_duration
from mvprune.v1 import job_pb2
from mvprune_service.api.errors import Violation, bad
from mvprune_service.domain.run_length import default_cooldown, shape_of

_CHOICES = ("train", "none")  # sources of a teacher that name nothing
_SCHEDULE = job_pb2.Schedule.DESCRIPTOR.fields_by_name
_WARMUP = default_of(_SCHEDULE["warmup"])
FREEZING = ("smp",)
"""The methods that train no weights of the model's body."""
STARTING_DENSE = ("platon", "obert")
"""The methods that need gradients of the dense model before they prune."""
_DENSITY = bound_of(job_pb2.CompressionSpec.DESCRIPTOR.fields_by_name["target_density"])
_STEPS = bound_of(job_pb2.Training.DESCRIPTOR.fields_by_name["max_steps"])


def check_numbers(field: str, message: Any) -> Iterator[Violation]:
    """Numbers and durations of a message that are set, and outside the bounds of the contract."""
    for found, value in message.ListFields():
        bound = bound_of(found)
        if bound is None:
            continue
        number = value.seconds + value.nanos / 1e9 if is_duration(found) else value
        if number not in bound:
            yield bad(f"{field}.{found.name}", f"{number:g} s" if is_duration(found) else value, str(bound))


def check_density(spec: job_pb2.CompressionSpec, *, may_be_of_mask: bool = True) -> Iterator[Violation]:
    """Whether there is a density.

    Args:
        may_be_of_mask: whether a job with a mask may take its density from that.
    """
    has_mask, field = spec.locked_mask.mask_from.WhichOneof("source") is not None, "job.spec.target_density"
    if spec.target_density == 1 and has_mask:
        yield bad(field, 1, "below 1 or unset with mask_from")
    if not spec.target_density and not (has_mask or spec.pattern):
        yield bad(field, 0, f"{_DENSITY}; 0.03 keeps 3 % of the prunable weights")
    elif not spec.target_density and not may_be_of_mask:
        yield bad(field, 0, f"{_DENSITY} in a sweep, which compares densities; give that of the mask, or a lower one")


def check_method(spec: job_pb2.CompressionSpec, steps: int) -> Iterator[Violation]:
    """The method, its options, and which modules it is for.

    Args:
        steps: of the training; 0 where they are not known.
    """
    method = spec.WhichOneof("method")
    if method is None:
        yield bad("job.spec.method", "", f"one of {', '.join(METHODS)}")
    else:
        options = getattr(spec, method)
        yield from check_numbers(f"job.spec.{method}", options)
        if method == "locked_mask":
            yield from _check_mask(spec.locked_mask.mask_from)
            yield from _check_rewind(spec.locked_mask, steps)
        if "schedule" in METHODS[method].message_type.fields_by_name:
            yield from _check_schedule(method, options.schedule, spec.training, steps)
        if "mask_interval" in METHODS[method].message_type.fields_by_name:
            yield from _check_interval(f"job.spec.{method}", options, steps)
        if method in FREEZING and spec.training.train_embeddings:
            rule = f"unset with the method {method}, which trains no weights of the model's body"
            yield bad("job.spec.training.train_embeddings", "true", rule)
    yield from _check_names("job.spec.include", spec.include)
    yield from _check_names("job.spec.exclude", spec.exclude)
    if spec.pattern:
        yield from _check_pattern(spec)
    if spec.structure:
        yield from _check_structure(spec)
    if spec.HasField("structure_density"):
        yield from _check_structure_density(spec)
    if spec.HasField("structure_block_size") and spec.structure != job_pb2.CompressionSpec.BLOCKS_AND_UNITS:
        rule = "unset without structure blocks_and_units; give that structure"
        yield bad("job.spec.structure_block_size", spec.structure_block_size, rule)
    if spec.structure_fill:
        yield from _check_fill(spec)


def check_storage(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """That the options go together. Only the worker knows whether a target size can be reached."""
    if spec.trim_positions and spec.delta:
        yield bad("job.spec.delta", "true", "false with trim_positions, which changes the shape of a table")
    if not spec.HasField("target_bytes"):
        return
    if spec.embedding_dtype:
        given = job_pb2.CompressionSpec.Values.Name(spec.embedding_dtype).lower()
        yield bad("job.spec.embedding_dtype", given, "unset with target_bytes, which chooses it; give one of the two")
    if spec.delta:
        yield bad("job.spec.delta", "true", "false with target_bytes; give one of the two")


def check_training(training: job_pb2.Training, task: Task | None) -> Iterator[Violation]:
    """The fine-tuning settings; `task`: None where it is not known."""
    field = "job.spec.training"
    yield from check_numbers(field, training)
    if training.HasField("max_steps") and training.HasField("epochs"):
        yield bad(f"{field}.epochs", f"{training.epochs:g}", "unset beside max_steps; give one of the two")
    for name in ("max_steps", "epochs"):
        if training.preset and training.HasField(name):
            given = job_pb2.Training.Preset.Name(training.preset).lower()
            yield bad(f"{field}.preset", given, f"unset beside {name}; give one of the two")
    if training.HasField("batch_size") and training.accumulation_steps > training.batch_size > 0:
        yield bad(
            f"{field}.accumulation_steps", training.accumulation_steps, f"at most batch_size, {training.batch_size}"
        )
    if not training.HasField("evaluate_every"):
        needs = "unset without evaluate_every; give evaluate_every, the steps between evaluations"
        if training.HasField("patience"):
            yield bad(f"{field}.patience", training.patience, needs)
        if training.keep_best:
            yield bad(f"{field}.keep_best", "true", needs)
    if training.best_metric:
        if task is not None and training.best_metric not in task.metrics:
            yield Violation(f"{field}.best_metric", must_be_one_of(task.metrics, training.best_metric))
        if not (training.HasField("patience") or training.keep_best):
            yield bad(f"{field}.best_metric", training.best_metric, "unset without patience or keep_best")


def check_teacher(teacher: job_pb2.Teacher) -> Iterator[Violation]:
    """The distillation's own settings. The model or the job that it names is checked elsewhere."""
    field = "job.spec.teacher"
    yield from check_numbers(field, teacher)
    source = teacher.WhichOneof("source")
    if source in _CHOICES and not getattr(teacher, source):
        yield bad(f"{field}.{source}", "false", "true or unset")
    if teacher.none:
        for found, value in teacher.ListFields():
            if bound_of(found) is not None:
                yield bad(f"{field}.{found.name}", value, "unset without a teacher")
    if teacher.revision and source != "model":
        yield bad(f"{field}.revision", teacher.revision, "unset without a model of the hub")


def check_baseline(spec: job_pb2.CompressionSpec, task: Task | None) -> Iterator[Violation]:
    """Where the dense metrics come from. The job that it names is checked elsewhere."""
    source, teacher = spec.baseline.WhichOneof("source"), spec.teacher.WhichOneof("source")
    if source is None:
        return
    field, given = f"job.spec.baseline.{source}", spec.baseline.job if source == "job" else "true"
    if source != "job" and not getattr(spec.baseline, source):
        yield bad(field, "false", "true or unset")
    elif spec.target_density == 1:
        yield bad(field, given, "unset with density 1, whose result is the dense model")
    elif source == "none":
        if teacher is None and not (task and task.kind.not_distilled):
            yield bad(field, given, "unset without teacher, which is the dense baseline then; give a teacher, or none")
    elif teacher in ("job", "train") and spec.baseline.job != spec.teacher.job:
        yield bad(field, given, f"unset or the teacher's job beside teacher.{teacher}")
    elif source == "train" and teacher in ("job", "train"):
        yield bad(field, given, f"unset beside teacher.{teacher}, whose metrics are the dense ones")


def check_keep_fine_tuned(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """Whether the result can be the model itself."""
    field = "job.spec.keep_fine_tuned"
    if spec.keep_fine_tuned and spec.target_density < 1:
        yield bad(field, "true", f"unset with a density below 1, here {spec.target_density:g}")
    elif spec.keep_fine_tuned and spec.HasField("teacher") and not spec.teacher.none:
        yield bad(field, "true", "unset with a teacher")


def _check_mask(mask: job_pb2.Mask) -> Iterator[Violation]:
    """The mask's own settings. The model or the job that it names is checked elsewhere."""
    field, source = "job.spec.locked_mask.mask_from", mask.WhichOneof("source")
    if source is None or not getattr(mask, source):
        yield bad(field, "", "a model with zeros, or job:ID, with the method locked_mask")
    if mask.revision and source != "model":
        yield bad(f"{field}.revision", mask.revision, "unset without a model of the hub")
    if mask.artifact:
        yield bad(f"{field}.artifact", mask.artifact, "unset; the server sets it to the artifact of the job")


def _check_rewind(mask: job_pb2.LockedMask, steps: int) -> Iterator[Violation]:
    """That steps train the dense model, and others the mask's weights; where the number of steps is given."""
    if mask.rewind and steps > 0 and 0 < mask.rewind < 1 and not 0 < round(mask.rewind * steps) < steps:
        rule = f"at least one of the {steps} steps, and leave one to train the mask's weights; give more steps, or 0"
        yield bad("job.spec.locked_mask.rewind", mask.rewind, rule)


def _check_schedule(
    method: str, schedule: job_pb2.Schedule, training: job_pb2.Training, steps: int
) -> Iterator[Violation]:
    field, shape = f"job.spec.{method}.schedule", shape_of(method, schedule)
    yield from check_numbers(field, schedule)
    for name in ("events", "first_event"):
        if shape != job_pb2.Schedule.EVENTS and schedule.HasField(name):
            yield bad(f"{field}.{name}", getattr(schedule, name), "unset without the shape events; give that shape")
    yield from _check_start(method, schedule, steps)
    if shape == job_pb2.Schedule.ONE_SHOT:
        if schedule.HasField("cooldown"):
            yield bad(f"{field}.cooldown", schedule.cooldown, "unset for one_shot, which prunes when the warm-up ends")
        return
    warmup = schedule.warmup if schedule.HasField("warmup") else _WARMUP
    cooldown = schedule.cooldown if schedule.HasField("cooldown") else default_cooldown(training)
    if warmup + cooldown >= 1:
        rule = "below 1 for warmup + cooldown; otherwise there are no steps to prune in"
        yield bad(field, f"{warmup:g} + {cooldown:g}", rule)
    elif _STEPS is not None and steps in _STEPS and warmup >= 0 and cooldown > 0:
        cool = round(cooldown * steps)
        between = steps - round(warmup * steps) - cool
        events = schedule.events if schedule.HasField("events") else EVENTS
        if cool < 1 or between < 1:
            rule = "long enough for a step to prune in and one at the target density; give more steps or shorter parts"
            yield bad(field, f"warmup {warmup:g} and cooldown {cooldown:g} of {steps} steps", rule)
        elif shape == job_pb2.Schedule.EVENTS and events > between + 1:
            rule = f"at most {between + 1}, one a step between warmup and cooldown; give more steps or fewer events"
            yield bad(f"{field}.events", events, rule)


def _check_start(method: str, schedule: job_pb2.Schedule, steps: int) -> Iterator[Violation]:
    """That nothing is pruned before the first step, by a method that needs gradients of the dense model before."""
    shape, warmup = shape_of(method, schedule), schedule.warmup if schedule.HasField("warmup") else _WARMUP
    is_at_once = shape == job_pb2.Schedule.ONE_SHOT or (shape == job_pb2.Schedule.EVENTS and schedule.events != 1)
    if method in STARTING_DENSE and is_at_once and (round(warmup * steps) < 1 if steps else warmup == 0):
        rule = f"at least one step with the method {method}, which needs gradients of the dense model; give more"
        yield bad(f"job.spec.{method}.schedule.warmup", warmup, rule)


def _check_interval(field: str, options: Any, steps: int) -> Iterator[Violation]:
    """That weights are exchanged before the masks stay as they are; where the number of steps is given."""
    fields = options.DESCRIPTOR.fields_by_name
    until = options.mask_until if options.HasField("mask_until") else default_of(fields["mask_until"])
    last = max(1, round(until * steps))
    interval = options.mask_interval or mask_interval_of(steps)
    if steps > 0 and 0 < until <= 1 and interval >= last:
        rule = f"below {last}, the steps until the masks stay as they are; give more steps or a later mask_until"
        yield bad(f"{field}.mask_interval", interval, rule)


def _check_pattern(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """The N:M pattern, and that method and density go with it. The model's rows: see architectures.py."""
    try:
        pattern = Pattern.parse(spec.pattern)
    except ValueError as error:
        yield Violation("job.spec.pattern", str(error))
        return
    if (method := spec.WhichOneof("method")) not in {None, *RANKING}:
        yield bad("job.spec.pattern", spec.pattern, f"unset with the method {method}; take one of {', '.join(RANKING)}")
    if spec.target_density and (problem := pattern.problem_with_density(spec.target_density)):
        yield Violation("job.spec.target_density", problem)


def _check_structure(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """That the other options go with whole structures. The model's heads and units: see architectures.py."""
    field, given = "job.spec.structure", job_pb2.CompressionSpec.Structure.Name(spec.structure).lower()
    method, takes = spec.WhichOneof("method"), OF_STRUCTURE.get(given, ())
    if method not in {None, *takes}:
        yield bad(field, given, f"unset with the method {method}; take one of {', '.join(takes)}")
    elif method is not None and getattr(getattr(spec, method), "selection", 0) == job_pb2.LOCAL:
        rule = "global or unset with structure, which compares all blocks"
        yield bad(f"job.spec.{method}.selection", "local", rule)
    if spec.pattern:
        yield bad("job.spec.pattern", spec.pattern, "unset with structure; give one of the two")
    if spec.delta:
        yield bad("job.spec.delta", "true", "false with structure, which changes the shapes of the model")


def _check_structure_density(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """That there are structures, of a density above that of the weights. Its bound is checked with all numbers."""
    field, given = "job.spec.structure_density", spec.structure_density
    if not spec.structure:
        yield bad(field, given, "unset without structure; give a structure")
    elif (method := spec.WhichOneof("method")) in GATED:
        yield bad(field, given, f"unset with the method {method}, whose gates open all weights of a structure")
    elif spec.structure_density <= spec.target_density:
        rule = f"above the density, {spec.target_density:g}; leave it out to keep all weights of what stays"
        yield bad(field, given, rule)


def _check_fill(spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """That blocks are pruned, and that what stays is to be dense."""
    field = "job.spec.structure_fill"
    if spec.structure != job_pb2.CompressionSpec.BLOCKS_AND_UNITS:
        yield bad(field, "true", "unset without structure blocks_and_units; give that structure")
    if spec.HasField("structure_density"):
        yield bad(field, "true", "unset with structure_density, which prunes what stays; give one of the two")
    if spec.target_density == 1:
        yield bad(field, "true", "unset with density 1, at which nothing is pruned")


def _check_names(field: str, patterns: Sequence[str]) -> Iterator[Violation]:
    """Their number and lengths are checked with every other list of texts: see inputs.py."""
    for pattern in patterns:
        if not pattern or not pattern.isprintable() or " " in pattern:
            yield bad(field, pattern, "printable characters without blanks, such as *.attention.*")
