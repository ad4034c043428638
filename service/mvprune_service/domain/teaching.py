"""Which jobs can be teachers, and what their end means for students that wait for them."""

from __future__ import annotations

from enum import Enum

from mvprune_service.domain.machine import JobState

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
