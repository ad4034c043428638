"""Decisions about the teacher of a run before anything is trained."""

from __future__ import annotations

from dataclasses import replace

from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.models.forward import check_forward
from mvprune_core.models.loading import Loaded, find_model
from mvprune_core.runs.baselines import SharedBaseline
from mvprune_core.runs.resolved import Request
from mvprune_core.tasks.batching import Examples, trained_on
from mvprune_core.training.distillation import Teacher, check_stored, compare_states

_PASSES_FOR_HIDDEN_STATES = 5  # over the data; in shorter runs, matching them does not help (research/notebook.md)


def check_teaching(
    request: Request,
    teacher: Teacher,
    student: Loaded,
    train: Examples,
    max_length: int,
    order: tuple[int, int, int],
) -> None:
    """Checks what a teacher is to write and to predict. `order`: batch size, seed and steps of the training.

    Raises:
        CompressionError: INVALID_DATASET, the data has nothing that a teacher can write.
        ValueError: what it predicts is too much to be stored.
    """
    objective, which = request.objective, trained_on(train.lengths, *order)
    if not teacher.writes_targets:
        tokens, remedy = int(train.output_lengths[which].sum()), "fewer steps, fewer texts, or no teacher"
    else:  # how long its targets are is not known before it wrote them
        if flaw := objective.flaw_of_targets():
            raise CompressionError(Reason.INVALID_DATASET, f"teacher.writes_targets must be unset {flaw}")
        tokens = len(which) * objective.longest_output(student.config, max_length)
        remedy = "fewer steps, fewer texts, shorter ones, or alpha 0, with which only what it writes is learned"
    if teacher.learns_outputs:
        check_stored(tokens, objective.outputs, remedy)


def without_labels(teacher: Teacher, task: str) -> Teacher:
    """The teacher of a task whose examples have no labels: the loss is that of the teacher alone.

    Raises:
        ValueError: it has another weight.
    """
    if teacher.alpha not in (Teacher.alpha, 1):
        raise ValueError(
            f"teacher.alpha must be 1 for the task {task}, whose texts have no labels, got {teacher.alpha:g}"
        )
    return replace(teacher, alpha=1.0)


def resolve_teacher(
    teacher: Teacher, baseline: bool | SharedBaseline, passes: float, student: Loaded, train: Examples
) -> Teacher:
    """The teacher with a `Source`, unless it is the dense baseline, and with a weight for its hidden states."""
    given = teacher.hidden_states
    # Another named teacher may have been pretrained differently. Its hidden states then mean something else.
    shared = isinstance(baseline, SharedBaseline) and baseline.is_teacher and baseline.is_whole
    default = float(passes >= _PASSES_FOR_HIDDEN_STATES and (teacher.model is None or shared))
    weight = default if given is None else given
    try:
        if weight:
            check_forward(student.model, train, compare_states)
    except CompressionError:
        if given is not None:
            raise
        weight = 0.0
    model = None if teacher.model is None else find_model(teacher.model, teacher.revision)
    return replace(teacher, model=model, hidden_states=weight)
