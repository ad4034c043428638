"""Which jobs can be teachers, and what their end means for students that wait for them."""

from __future__ import annotations

from enum import Enum

from mvprune.data.tasks import TASKS
from mvprune.v1 import job_pb2
from mvprune_service.domain.machine import JobState

_ALSO_DENSE = frozenset({"metric"}).union(*(task.kind.options for task in TASKS.values()))
"""Options of a run that concern the dense model too: how it is trained, and what it is measured by."""
_WITHOUT_MODEL = (JobState.FAILED, JobState.CANCELLED, JobState.CANCELLING)


class Resolution(Enum):
    """The consequence for a student."""

    WAIT = "WAIT"  # nothing yet, or no longer anything: it does not wait for its teacher
    START = "START"  # the teacher has a model
    FAIL = "FAIL"  # the teacher has none and will have none


def waits_for_teacher(teacher_uid: str | None, teacher_sha256: str | None) -> bool:
    """Whether a job has to wait for the model of its teacher."""
    return teacher_uid is not None and teacher_sha256 is None


def can_teach(state: JobState) -> bool:
    """Whether a job in this state has a model, or may still get one."""
    return state not in _WITHOUT_MODEL


def resolve(student: JobState, *, has_model: bool, teacher: JobState | None) -> Resolution:
    """Decides what happens to a student.

    Args:
        has_model: the student's teacher is known to have a model.
        teacher: the state of the teacher's job, None if it was deleted.
    """
    if student is not JobState.QUEUED or has_model:
        return Resolution.WAIT
    match teacher:
        case JobState.SUCCEEDED:
            return Resolution.START
        case None | JobState.FAILED | JobState.CANCELLED:
            return Resolution.FAIL
    return Resolution.WAIT


def dense_spec(student: job_pb2.CompressionSpec) -> job_pb2.CompressionSpec:
    """The spec of a fine-tuning with the student's model, data, settings and seed, without pruning. A model that is
    fine-tuned already is its own result."""
    spec = job_pb2.CompressionSpec(
        model=student.model,
        model_revision=student.model_revision,
        task=student.task,
        target_density=1.0,
        seed=student.seed,
        magnitude=job_pb2.MagnitudePruning(),
        keep_fine_tuned=True,
    )
    for field, value in student.ListFields():
        if field.name in _ALSO_DENSE:
            setattr(spec, field.name, value)
    if student.HasField("dataset"):
        spec.dataset.CopyFrom(student.dataset)
    training = job_pb2.Training()
    training.CopyFrom(student.training)
    training.ClearField("lr_density_exponent")  # of pruned matrices
    if training.preset == job_pb2.Training.SHORT:  # the default
        training.ClearField("preset")
    if training.ListFields():
        spec.training.CopyFrom(training)
    return spec
