"""Whether the disk has room for a result."""

from __future__ import annotations

import shutil
from pathlib import Path

from mvprune.common.units import size
from mvprune.sources.model_folder import inspect_model
from mvprune_core import CompressionError, Reason

_BYTES = 2  # a stored value in fp16; positions take less
_TEXT_BYTES = 8 << 20  # the tokenizer, the report, …


def check_disk(output: Path, model: Path, density: float) -> None:
    """Checks, before anything is trained, that the disk has room for an artifact.

    Args:
        output: folder that the artifact is written to; it may be missing.
        model: folder of the model.
        density: fraction of the prunable weights to keep.

    Raises:
        CompressionError: DISK_FULL.
    """
    found = inspect_model(model)
    values = found.base_parameters - found.prunable_weights * (1 - density)
    needed = round(values * _BYTES) + _TEXT_BYTES
    folder = next(path for path in (output, *output.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CompressionError(
            Reason.DISK_FULL,
            f"the worker's disk must have {size(needed)} free for the artifact, got {size(free)} in {folder}; free "
            "some of it, or give the worker a larger one (MVPRUNE_SCRATCH)",
        )
