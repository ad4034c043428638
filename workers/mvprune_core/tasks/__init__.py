"""Kinds of task: one file a kind, chosen by the type of the data."""

from __future__ import annotations

from mvprune.data.loading import ClassificationData, PassageData, QuestionAnsweringData, TaskData
from mvprune_core.tasks.base import Objective
from mvprune_core.tasks.classification import Classification
from mvprune_core.tasks.masked_lm import MaskedLanguageModelling
from mvprune_core.tasks.question_answering import QuestionAnswering
from mvprune_core.tasks.token_classification import TokenClassification


def objective_for(data: TaskData) -> Objective:
    """The objective of a data set that `load_task` returned."""
    match data:
        case ClassificationData():
            return Classification(data)
        case QuestionAnsweringData():
            return QuestionAnswering(data)
        case PassageData():
            return MaskedLanguageModelling(data)
        case _:
            return TokenClassification(data)


__all__ = ["Objective", "TaskData", "objective_for"]
