"""How large an artifact's largest files would be, without writing the artifact."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from mvprune.artifact.model import TOKENIZER_FILE, compact_json, state_arrays
from mvprune.artifact.values import rounded
from mvprune.artifact.weights import Coding, write_weights
from mvprune.sources.model_config import WEIGHTS_FILE


def weights_bytes(model: nn.Module, pruned: Collection[str], coding: Coding) -> int:
    """Bytes of the weights file of a model whose values are rounded to `coding`."""
    return _written(state_arrays(model), pruned, coding)


def unpruned_bytes(model: nn.Module, pruned: Collection[str], without: Collection[str], coding: Coding) -> int:
    """Bytes of a weights file of what is not pruned, rounded to `coding`; the model does not change.

    Args:
        model: any.
        pruned: names of its pruned weights.
        without: names of further tensors that do not count.
        coding: how the values would be stored.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    seen: dict[int, npt.NDArray[Any]] = {}  # tied tensors stay one array
    for name, array in state_arrays(model).items():
        if name in pruned or name in without:
            continue
        if array.dtype.kind == "f":
            if id(array) not in seen:
                seen[id(array)] = rounded(array, coding.of(pruned=False, dimensions=array.ndim))
            array = seen[id(array)]
        arrays[name] = array
    return _written(arrays, (), coding)


def tokenizer_bytes(tokenizer: Any) -> int:
    """Bytes of a tokenizer's files in an artifact."""
    with TemporaryDirectory(prefix="mvprune-") as folder:
        tokenizer.save_pretrained(Path(folder))
        compact_json(Path(folder) / TOKENIZER_FILE)
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _written(arrays: Mapping[str, np.ndarray[Any, Any]], pruned: Collection[str], coding: Coding) -> int:
    with TemporaryDirectory(prefix="mvprune-") as folder:
        path = Path(folder) / WEIGHTS_FILE
        write_weights(path, arrays, pruned, coding)
        return path.stat().st_size
