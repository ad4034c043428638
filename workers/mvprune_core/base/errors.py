"""Why a compression failed, in the vocabulary of the contract."""

from __future__ import annotations

from enum import StrEnum

import torch


class Reason(StrEnum):
    """The reasons the core can give: names of `mvprune.v1.Failure.Reason`."""

    INVALID_MODEL = "INVALID_MODEL"
    INVALID_DATASET = "INVALID_DATASET"
    UNREACHABLE_HUB = "UNREACHABLE_HUB"
    UNSUPPORTED_ARCHITECTURE = "UNSUPPORTED_ARCHITECTURE"
    NAN_LOSS = "NAN_LOSS"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DENSITY_NOT_REACHED = "DENSITY_NOT_REACHED"
    MISSING_DEPENDENCY = "MISSING_DEPENDENCY"
    TARGET_NOT_REACHED = "TARGET_NOT_REACHED"
    ARTIFACT_CORRUPT = "ARTIFACT_CORRUPT"
    DISK_FULL = "DISK_FULL"


class CompressionError(Exception):
    """A compression that cannot succeed as asked. `str(error)` is one sentence: what happened and what to do."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory is used up, of the machine or of a device."""
    # torch has no class of its own for the CPU.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
