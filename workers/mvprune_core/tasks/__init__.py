"""Kinds of task: one file a kind, chosen by the type of the data."""

from __future__ import annotations

from mvprune.data import ClassificationData
from mvprune_core.squad import QuestionAnsweringData
from mvprune_core.tasks.base import Objective
from mvprune_core.tasks.classification import Classification
from mvprune_core.tasks.question_answering import QuestionAnswering

TaskData = ClassificationData | QuestionAnsweringData


def objective_for(data: TaskData) -> Objective:
    """The objective of a data set that `load_task` returned."""
    return QuestionAnswering(data) if isinstance(data, QuestionAnsweringData) else Classification(data)


__all__ = ["Objective", "TaskData", "objective_for"]
