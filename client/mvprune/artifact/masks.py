"""Folders that can give a job its mask: a model, or an artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.inspection import Inspection, inspect
from mvprune.artifact.manifest import MANIFEST_FILE, MAX_MANIFEST
from mvprune.artifact.parts import EMBEDDINGS, ENCODER
from mvprune.sources import model_folder
from mvprune.sources.known_models import ModelSize
from mvprune.sources.model_config import WEIGHTS_FILE
from mvprune.sources.references import InvalidReference

Inspect = Callable[[Path], ModelSize]
"""`inspect_mask`, or `inspect_model`."""
READ_WHOLE: Mapping[str, int] = {**model_folder.READ_WHOLE, MANIFEST_FILE: MAX_MANIFEST}
"""The files that `inspect_mask` reads whole; see `model_folder.READ_WHOLE`."""


def is_artifact(folder: Path) -> bool:
    """Whether a folder is an artifact of mvprune, and no model."""
    return (folder / MANIFEST_FILE).is_file() and (folder / WEIGHTS_FILE).is_file()


def inspect_mask(folder: Path) -> ModelSize:
    """As `inspect_model`, for a folder whose zeros are a mask: it may also be an artifact that is not a delta.

    Of an artifact, only the manifest and the header of the weights are read. Its base parameters are those of the
    encoder and the embeddings.

    Raises:
        InvalidReference: as `inspect_model`; the artifact is damaged, or a delta.
    """
    if not is_artifact(folder):
        return model_folder.inspect_model(folder)
    try:
        found = inspect(folder, outline=True)
    except ArtifactError as error:
        raise InvalidReference(f"{str(folder)!r}: {error}") from None
    if found.delta:
        raise InvalidReference(
            f"{str(folder)!r} must be an artifact that has all its weights, got a delta; "
            "`mvpctl export ARTIFACT OUT --to dense` makes a model of it"
        )
    counts = found.manifest.accounting
    return ModelSize(
        base_parameters=_parameters(found, ENCODER) + _parameters(found, EMBEDDINGS),
        encoder_parameters=_parameters(found, ENCODER),
        prunable_weights=counts.prunable_weights,
    )


def _parameters(found: Inspection, name: str) -> int:
    return sum(part.parameters for part in found.parts if part.part == name)
