"""How large an artifact's largest files would be, without writing the artifact."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy.typing as npt

from mvprune.artifact.described import write_tokenizer
from mvprune.artifact.values import rounded
from mvprune.artifact.weights import Coding, tied_names, write_weights
from mvprune.sources.model_config import CONFIG_FILE, WEIGHTS_FILE


def weights_bytes(tensors: Mapping[str, npt.NDArray[Any]], pruned: Collection[str], coding: Coding) -> int:
    """Bytes of the weights file of some tensors, rounded to a coding; the tensors do not change.

    Args:
        tensors: of `state_arrays`; tied ones are one array.
        pruned: names of those whose non-zeros are stored.
        coding: how the values would be stored.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for names in tied_names(tensors):
        array, sparse = tensors[names[0]], any(name in pruned for name in names)
        if array.dtype.kind == "f":
            kind = coding.of(*names, pruned=sparse, shape=array.shape)
            array = rounded(array, kind, sparse=sparse)
        arrays |= dict.fromkeys(names, array)
    with TemporaryDirectory(prefix="mvprune-") as folder:
        path = Path(folder) / WEIGHTS_FILE
        write_weights(path, arrays, [name for name in arrays if name in pruned], coding)
        return path.stat().st_size


def description_bytes(config: Any, tokenizer: Any) -> int:
    """Bytes of a model's configuration and of its tokenizer's files in an artifact."""
    with TemporaryDirectory(prefix="mvprune-") as folder:
        write_tokenizer(Path(folder), tokenizer)
        (Path(folder) / CONFIG_FILE).write_text(config.to_json_string())
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
