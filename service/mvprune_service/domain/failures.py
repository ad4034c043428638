"""Why work fails: one total mapping from reason to what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class FailureReason(StrEnum):
    """mvprune.v1.Failure.Reason."""

    INVALID_MODEL = "INVALID_MODEL"
    INVALID_DATASET = "INVALID_DATASET"
    UNREACHABLE_HUB = "UNREACHABLE_HUB"
    UNSUPPORTED_ARCHITECTURE = "UNSUPPORTED_ARCHITECTURE"
    NAN_LOSS = "NAN_LOSS"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DENSITY_NOT_REACHED = "DENSITY_NOT_REACHED"
    ARTIFACT_CORRUPT = "ARTIFACT_CORRUPT"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    WORKER_LOST = "WORKER_LOST"
    START_TIMEOUT = "START_TIMEOUT"
    TRAINER_CRASHED = "TRAINER_CRASHED"
    UNSATISFIABLE_RESOURCES = "UNSATISFIABLE_RESOURCES"
    MISSING_DEPENDENCY = "MISSING_DEPENDENCY"
    PREEMPTED = "PREEMPTED"
    TEACHER_FAILED = "TEACHER_FAILED"


@dataclass(frozen=True)
class Rule:
    """`retryable`: a new attempt may help as things are. `text`: said where the worker gave no words of its own."""

    retryable: bool
    text: str


RULES: Mapping[FailureReason, Rule] = MappingProxyType(
    {
        FailureReason.INVALID_MODEL: Rule(False, "the model cannot be used"),
        FailureReason.INVALID_DATASET: Rule(False, "the data cannot be used"),
        FailureReason.UNREACHABLE_HUB: Rule(
            False, "the hub cannot be reached; give a local model folder and local data files instead"
        ),
        FailureReason.UNSUPPORTED_ARCHITECTURE: Rule(False, "the model has no layers that can be pruned"),
        FailureReason.NAN_LOSS: Rule(False, "the loss became NaN or infinite; try a smaller learning rate"),
        FailureReason.OUT_OF_MEMORY: Rule(False, "out of memory; try a smaller batch size or more memory"),
        FailureReason.DENSITY_NOT_REACHED: Rule(False, "the target density was not reached"),
        FailureReason.ARTIFACT_CORRUPT: Rule(False, "the uploaded artifact is incomplete or corrupt"),
        FailureReason.STORE_UNAVAILABLE: Rule(True, "the artifact store could not be reached"),
        FailureReason.WORKER_LOST: Rule(True, "the worker disappeared"),
        FailureReason.START_TIMEOUT: Rule(True, "the worker did not start in time"),
        FailureReason.TRAINER_CRASHED: Rule(False, "the training process ended unexpectedly; see the logs"),
        FailureReason.UNSATISFIABLE_RESOURCES: Rule(False, "no node has the resources that the job asks for"),
        FailureReason.MISSING_DEPENDENCY: Rule(False, "the worker lacks a package"),
        FailureReason.PREEMPTED: Rule(True, "the worker was told to stop"),
        FailureReason.TEACHER_FAILED: Rule(False, "the teacher's job did not succeed"),
    }
)
