"""The method of a job that names none."""

from __future__ import annotations

from mvprune.data.tasks import TASKS
from mvprune.spec.cells import METHOD, build
from mvprune.spec.given import options_of
from mvprune.spec.method_choice import choose_method
from mvprune.spec.parameter import AUTO
from mvprune.v1 import job_pb2
from mvprune_service.domain.run_length import Rows, about_steps


def fill_method(spec: job_pb2.CompressionSpec, rows: Rows | None) -> str:
    """Chooses the method where none is given, and sets its options. Returns a note on it; "" otherwise.

    A task that is not known is left to those who check it.

    Args:
        rows: None where they are not known.
    """
    task = TASKS.get(spec.task)
    if task is None or spec.WhichOneof(METHOD) not in (None, AUTO):
        return ""
    choice = choose_method(options_of(spec), task, about_steps(spec.training, task, rows))
    spec.CopyFrom(build(spec, {METHOD: choice.method, **choice.options}).spec)
    return choice.reason
