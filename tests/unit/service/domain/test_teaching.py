"""Which jobs can be teachers, and what becomes of students, over every state of both."""

from __future__ import annotations

import itertools

import pytest

from mvprune_service.domain.machine import JobState
from mvprune_service.domain.teaching import Resolution, can_teach, resolve, waits_for_teacher

STATES = (None, *JobState)


@pytest.mark.parametrize("state", JobState)
def test_jobs_without_a_model_cannot_teach(state: JobState) -> None:
    assert can_teach(state) is (state in ("QUEUED", "STARTING", "RUNNING", "FINALIZING", "SUCCEEDED"))


@pytest.mark.parametrize(("student", "teacher"), list(itertools.product(JobState, STATES)))
def test_every_student_and_teacher(student: JobState, teacher: JobState | None) -> None:
    expected = Resolution.WAIT
    if student == "QUEUED" and teacher == "SUCCEEDED":
        expected = Resolution.START
    elif student == "QUEUED" and teacher in (None, "FAILED", "CANCELLED"):
        expected = Resolution.FAIL
    assert resolve(student, has_model=False, teacher=teacher) is expected
    assert resolve(student, has_model=True, teacher=teacher) is Resolution.WAIT


def test_a_job_waits_until_its_teacher_has_a_model() -> None:
    assert waits_for_teacher("uid", None)
    assert not waits_for_teacher("uid", "ab")
    assert not waits_for_teacher(None, None)
