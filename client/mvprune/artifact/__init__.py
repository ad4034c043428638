"""The sparse artifact: a folder with a manifest, a model's configuration and tokenizer, and its weights.

    round_values(model, names, coding)                                           # to what the file can hold
    manifest = save_model(folder, model, tokenizer, pruned=names, result=info, coding=coding)   # writes it
    manifest = verify(folder)                                                    # checks every byte
    model = load(folder)                                                         # a plain transformers model

The manifest needs the standard library alone; what touches weights is imported on first use and needs
``mvprune[runtime]``. docs/artifact-format.md describes the layout.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mvprune.artifact.errors import ArtifactError, MissingExtra, needs
from mvprune.artifact.manifest import (
    MANIFEST_FILE,
    Accounting,
    ArtifactFile,
    DatasetSource,
    LayerCount,
    Manifest,
    ModelSource,
    ResultInfo,
    read_manifest,
    verify,
)
from mvprune.sources.model_config import WEIGHTS_FILE

if TYPE_CHECKING:
    from mvprune.artifact.base import Base
    from mvprune.artifact.model import load, round_values, save_model
    from mvprune.artifact.values import Values
    from mvprune.artifact.weights import Coding, read_weights, stream_weights, write_weights

__all__ = [
    "MANIFEST_FILE",
    "WEIGHTS_FILE",
    "Accounting",
    "ArtifactError",
    "ArtifactFile",
    "Base",
    "Coding",
    "DatasetSource",
    "LayerCount",
    "Manifest",
    "MissingExtra",
    "ModelSource",
    "ResultInfo",
    "Values",
    "load",
    "read_manifest",
    "read_weights",
    "round_values",
    "save_model",
    "stream_weights",
    "verify",
    "write_weights",
]

_HOMES = {
    "Base": "mvprune.artifact.base",
    "Coding": "mvprune.artifact.weights",
    "Values": "mvprune.artifact.values",
    "load": "mvprune.artifact.model",
    "round_values": "mvprune.artifact.model",
    "save_model": "mvprune.artifact.model",
    "read_weights": "mvprune.artifact.weights",
    "stream_weights": "mvprune.artifact.weights",
    "write_weights": "mvprune.artifact.weights",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(name, "runtime"):
        return getattr(import_module(_HOMES[name]), name)
