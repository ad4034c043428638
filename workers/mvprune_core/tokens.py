"""Tokenised data on disk: a second run over the same data starts to train at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mvprune_core.batching import Examples, TokenMasking
from mvprune_core.storage import Cache

_KIND = "tokens"
_WHENCE = ("name_or_path", "is_local", "local_files_only")


def cached_examples(cache: Cache, key: str, make: Callable[[], Examples]) -> Examples:
    """What `make` returns, or returned for the same key before."""
    return unpack(cache.tensors(_KIND, key, lambda: pack(make())))


def pack(examples: Examples) -> dict[str, Tensor]:
    """Examples as a few long tensors."""
    tensors = {f"target.{name}": target for name, target in examples.targets.items()}
    for part, columns in (("input", examples.inputs), ("note", examples.notes)):
        for name, rows in columns.items():
            tensors[f"{part}.{name}"] = torch.from_numpy(np.concatenate(rows))
            tensors[f"{part}-lengths.{name}"] = torch.tensor([len(row) for row in rows])
    tensors["pad_token"] = torch.tensor(examples.pad_token)
    if examples.masking is not None:
        tensors["masking"] = torch.tensor(astuple(examples.masking), dtype=torch.float64)
    return tensors


def unpack(tensors: Mapping[str, Tensor]) -> Examples:
    """The inverse of `pack`."""
    parts: dict[str, dict[str, Any]] = {"input": {}, "note": {}, "target": {}}
    for name, tensor in tensors.items():
        part, _, column = name.partition(".")
        if part == "target":
            parts[part][column] = tensor
        elif part in parts:
            parts[part][column] = _rows(tensor, tensors[f"{part}-lengths.{column}"])
    masking = None
    if "masking" in tensors:
        probability, mask_token, vocabulary = tensors["masking"].tolist()
        masking = TokenMasking(probability, int(mask_token), int(vocabulary))
    return Examples(parts["input"], parts["target"], int(tensors["pad_token"]), parts["note"], masking)


def tokenizer_digest(tokenizer: Any) -> str:
    """SHA-256 of all that decides which tokens a text becomes."""
    if tokenizer.is_fast:
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        del rules["truncation"], rules["padding"]  # left over from the last call
    else:
        rules = [sorted(tokenizer.get_vocab().items()), _vocabulary_files(tokenizer), _options(tokenizer)]
    beside = [tokenizer.model_input_names, tokenizer.special_tokens_map, tokenizer.truncation_side]
    parts = [type(tokenizer).__name__, rules, *beside]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _vocabulary_files(tokenizer: Any) -> list[str]:
    """SHA-256 of the files that a tokenizer in Python would write: words, merges, a sentencepiece model."""
    with TemporaryDirectory() as folder:
        return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in tokenizer.save_vocabulary(folder)]


def _options(tokenizer: Any) -> dict[str, str]:
    """What such a tokenizer was made with, but for where it came from."""
    return {
        name: str(value)
        for name, value in sorted(tokenizer.init_kwargs.items())
        if name not in _WHENCE and not name.endswith("_file")
    }


def _rows(tensor: Tensor, lengths: Tensor) -> Sequence[NDArray[np.int32]]:
    return np.split(tensor.numpy(), np.cumsum(lengths.numpy())[:-1])
