"""How long a job's training is, and what is said about it at submission."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from mvprune.data.phases import phases_of
from mvprune.data.run_length import Preset, epochs_of, planned_steps, preset_note, too_short
from mvprune.data.tasks import Task
from mvprune.sources.known_models import KNOWN_SIZES
from mvprune.v1 import job_pb2

_PRESETS: dict[int, Preset] = {
    job_pb2.Training.SHORT: "short",
    job_pb2.Training.PAPER: "paper",
    job_pb2.Training.LONG: "long",
}
_REMEMBERED = 1_000  # phases of runs


class Rows(NamedTuple):
    """Facts about the data to train on.

    Attributes:
        number: rows.
        has_pairs: whether an input is a pair of texts.
        validation: rows to evaluate on.
    """

    number: int
    has_pairs: bool
    validation: int


def preset_of(training: job_pb2.Training) -> Preset:
    """The preset of a training, which may name none."""
    return _PRESETS.get(training.preset, "short")


def notes_on_length(spec: job_pb2.CompressionSpec, task: Task, rows: Rows | None) -> Iterator[str]:
    """The meaning of a preset, and whether the steps are likely too few for the density.

    Args:
        rows: None where they are not known.
    """
    training = spec.training
    batch_size = training.batch_size or task.batch_size
    if training.preset and (examples := _examples(task, rows)) is not None:
        yield preset_note(task, examples, batch_size, _PRESETS[training.preset])
    has_pairs = rows.has_pairs if rows is not None else len(task.text_columns) > 1
    steps = about_steps(training, task, rows)
    if steps and spec.target_density and not _is_one_shot(spec):
        fine_tuned = False if spec.model in KNOWN_SIZES else None  # the pretrained models that are named
        note = too_short(steps, spec.target_density, batch_size, has_pairs=has_pairs, fine_tuned=fine_tuned)
        yield from [note] if note else []


def known_steps(training: job_pb2.Training, task: Task | None, rows: Rows | None) -> int:
    """The steps of a job; 0 where only its worker knows them.

    Args:
        training: without violations, or with a number of steps.
        task: None where it is not known.
        rows: None where they are not known.
    """
    if training.max_steps > 0 or task is None or task.kind.has_windows:
        return training.max_steps
    return about_steps(training, task, rows)


def about_steps(training: job_pb2.Training, task: Task, rows: Rows | None) -> int:
    """The steps of a job, or about as many; 0: they are not known."""
    return planned_steps(
        task,
        _examples(task, rows),
        max_steps=training.max_steps,
        epochs=training.epochs,
        batch_size=training.batch_size,
        preset=preset_of(training),
    )


def outlook(spec: job_pb2.CompressionSpec, task: Task, rows: Rows | None) -> job_pb2.JobEstimate:
    """The phases of a job, as far as they are known before it runs. Its model may be fine-tuned already.

    Args:
        spec: without violations.
        rows: None where they are not known.
    """
    training, steps, examples = spec.training, known_steps(spec.training, task, rows), _examples(task, rows)
    batch_size, given = training.batch_size or task.batch_size, spec.teacher.WhichOneof("source")
    dense_jobs = [getattr(spec, role).WhichOneof("source") in ("job", "train") for role in ("teacher", "baseline")]
    baseline = not (spec.target_density == 1 or spec.baseline.none or any(dense_jobs))
    teacher: Literal["dense", "other"] | None = None
    if given is not None:
        teacher = None if given == "none" else "other"
    elif not task.kind.not_distilled:
        teacher = "other" if any(dense_jobs) else "dense" if baseline or spec.HasField("teacher") else None
    result = job_pb2.JobEstimate()
    result.CopyFrom(
        _phases(
            baseline=baseline,
            teacher=teacher,
            writes=spec.teacher.writes_targets,
            predicts=not (spec.teacher.writes_targets and spec.teacher.HasField("alpha") and spec.teacher.alpha == 0),
            prunes=not (spec.keep_fine_tuned and spec.start_from),
            steps=steps,
            batch_size=batch_size,
            evaluate_every=training.evaluate_every,
            train=examples or 0,
            validation=rows.validation if rows is not None and task.kind.rows_are_examples else 0,
        )
    )
    if not steps:
        preset = _PRESETS.get(training.preset, "short")
        result.epochs = training.epochs or epochs_of(task, examples, batch_size, preset)
    return result


@lru_cache(_REMEMBERED)
def _phases(**of_run: Any) -> job_pb2.JobEstimate:
    """The phases of `phases_of`, and the upload. Many jobs of a server have the same."""
    result = job_pb2.JobEstimate(phases=[job_pb2.JobEstimate.Phase(**vars(phase)) for phase in phases_of(**of_run)])
    result.phases.add(name="uploading")
    return result


def _examples(task: Task, rows: Rows | None) -> int | None:
    return rows.number if rows is not None and task.kind.rows_are_examples else None


def _is_one_shot(spec: job_pb2.CompressionSpec) -> bool:
    method = str(spec.WhichOneof("method"))
    options = getattr(spec, method)
    if "schedule" not in options.DESCRIPTOR.fields_by_name:
        return True
    return bool(options.schedule.shape == job_pb2.Schedule.ONE_SHOT)
