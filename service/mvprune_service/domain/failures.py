"""Why jobs fail: a table from each reason to its rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
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
    MAX_RUNTIME = "MAX_RUNTIME"
    MAX_QUEUE_TIME = "MAX_QUEUE_TIME"
    GATE_FAILED = "GATE_FAILED"
    DISK_FULL = "DISK_FULL"
    TRAINER_KILLED = "TRAINER_KILLED"
    WRONG_VERSION = "WRONG_VERSION"
    TARGET_NOT_REACHED = "TARGET_NOT_REACHED"


class Retry(Enum):
    """Whether another attempt may help."""

    NEVER = "NEVER"
    ALWAYS = "ALWAYS"
    SMALLER_BATCH = "SMALLER_BATCH"  # only with fewer examples in memory at a time, if the job allows that
    UNLESS_REPEATED = "UNLESS_REPEATED"  # until it has happened at the same step too often: see retries.py


@dataclass(frozen=True)
class Rule:
    """Whether the job gets another attempt. `text` is the message if the worker sent none. `before_retry` is what has
    to change before a user retries the job, where it fails in the same way otherwise."""

    retry: Retry
    text: str
    before_retry: str = ""


RULES: Mapping[FailureReason, Rule] = MappingProxyType(
    {
        FailureReason.INVALID_MODEL: Rule(
            Retry.NEVER,
            "the model cannot be used",
            "mend the model where it is; what a client sent stays as it is: submit a job with the mended folder",
        ),
        FailureReason.INVALID_DATASET: Rule(
            Retry.NEVER,
            "the data cannot be used",
            "mend the data where they are; what a client sent stays as it is: submit a job with the mended files",
        ),
        FailureReason.UNREACHABLE_HUB: Rule(
            Retry.NEVER, "the hub cannot be reached; give a local model folder and local data files instead"
        ),
        FailureReason.UNSUPPORTED_ARCHITECTURE: Rule(
            Retry.NEVER,
            "the model cannot be pruned or trained",
            "submit a job with another model or other options",
        ),
        FailureReason.NAN_LOSS: Rule(
            Retry.NEVER,
            "the loss became NaN or infinite; try a smaller learning rate",
            "submit a job with a smaller learning rate",
        ),
        FailureReason.OUT_OF_MEMORY: Rule(Retry.SMALLER_BATCH, "out of memory; try smaller batches or more memory"),
        FailureReason.DENSITY_NOT_REACHED: Rule(
            Retry.NEVER,
            "the target density was not reached",
            "submit a job with another density or other options",
        ),
        FailureReason.ARTIFACT_CORRUPT: Rule(
            Retry.NEVER,
            "the artifact is incomplete, damaged, or computes something else than the model that was evaluated",
        ),
        FailureReason.STORE_UNAVAILABLE: Rule(Retry.ALWAYS, "the artifact store could not be reached"),
        FailureReason.WORKER_LOST: Rule(Retry.ALWAYS, "the worker disappeared"),
        FailureReason.START_TIMEOUT: Rule(Retry.ALWAYS, "the worker did not start in time"),
        FailureReason.TRAINER_CRASHED: Rule(Retry.NEVER, "the training process ended unexpectedly; see the logs"),
        FailureReason.UNSATISFIABLE_RESOURCES: Rule(Retry.NEVER, "no node has the resources that the job asks for"),
        FailureReason.MISSING_DEPENDENCY: Rule(
            Retry.NEVER,
            "the worker lacks a package, or cannot import it",
            "install the package where workers run",
        ),
        FailureReason.PREEMPTED: Rule(Retry.ALWAYS, "the worker received a signal to stop"),
        FailureReason.TEACHER_FAILED: Rule(Retry.NEVER, "the job of the teacher or the baseline did not succeed"),
        FailureReason.MAX_RUNTIME: Rule(Retry.NEVER, "the job ran longer than its max_runtime"),
        FailureReason.MAX_QUEUE_TIME: Rule(Retry.NEVER, "the job waited in the queue longer than its max_queue_time"),
        FailureReason.GATE_FAILED: Rule(
            Retry.NEVER,
            "the result misses a gate without which the job is to fail",
            "submit a job with another gate or other options",
        ),
        FailureReason.DISK_FULL: Rule(Retry.ALWAYS, "the worker's disk is full"),
        FailureReason.TRAINER_KILLED: Rule(
            Retry.UNLESS_REPEATED, "a signal that the service did not send killed the training process"
        ),
        FailureReason.WRONG_VERSION: Rule(
            Retry.ALWAYS,
            "the worker has another version of mvprune than the server",  # another node may have the right one
        ),
        FailureReason.TARGET_NOT_REACHED: Rule(
            Retry.NEVER,
            "the artifact cannot be as small as target_bytes",
            "submit a job with a larger target_bytes",
        ),
    }
)


def note_on_retry(reason: FailureReason | None) -> str:
    """What the answer says to a user who retries a job that failed for this reason; "" where nothing has to change."""
    if reason is None or not (change := RULES[reason].before_retry):
        return ""
    return f"the job failed with {reason.value}, and will again unless something has changed: {change}"
