"""A cache of tokenised data: a second run over the same data needs no tokenisation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mvprune_core.base.storage import Cache, identity
from mvprune_core.models.loading import Loaded
from mvprune_core.tasks import Objective, TaskData
from mvprune_core.tasks.batching import Examples, TokenMasking
from mvprune_core.tasks.classes import class_names

_KIND = "tokens"
_ORIGIN_OPTIONS = ("name_or_path", "is_local", "local_files_only")


def cached_examples(
    cache: Cache,
    objective: Objective,
    data: TaskData,
    loaded: Loaded,
    max_length: int,
    split: Literal["train", "validation"],
    tokenizer: str,
) -> Examples:
    """A split of `data`, tokenised for the model `loaded`; from the cache if possible.

    Args:
        tokenizer: the `tokenizer_digest` of the model's tokenizer.
    """
    make = objective.training_examples if split == "train" else objective.validation_examples
    key = identity(
        [data.task.name, data.fingerprint, split, max_length, sorted(objective.options.items())],
        [tokenizer, getattr(loaded.tokenizer, "chat_template", None)],
        [class_names(loaded.config), loaded.config.problem_type],
        loaded.config.is_encoder_decoder  # see `Classification` and `shifted`
        and [loaded.config.eos_token_id, getattr(loaded.config, "decoder_start_token_id", None)],
    )
    tensors = cache.tensors(_KIND, key, lambda: pack(make(loaded.tokenizer, loaded.config, max_length)))
    return replace(unpack(tensors), tokenizer=loaded.tokenizer)


def pack(examples: Examples) -> dict[str, Tensor]:
    """Examples as a few long tensors."""
    tensors = {f"target.{name}": target for name, target in examples.targets.items()}
    for part, columns in (("input", examples.inputs), ("note", examples.notes), ("decoder", examples.decoder)):
        for name, rows in columns.items():
            tensors[f"{part}.{name}"] = torch.from_numpy(np.concatenate(rows))
            tensors[f"{part}-lengths.{name}"] = torch.tensor([len(row) for row in rows])
    tensors["pad_token"] = torch.tensor(examples.pad_token)
    if examples.parts > 1:
        tensors["parts"] = torch.tensor(examples.parts)
    if examples.masking is not None:
        tensors["masking"] = torch.tensor(astuple(examples.masking), dtype=torch.float64)
    return tensors


def unpack(tensors: Mapping[str, Tensor]) -> Examples:
    """The inverse of `pack`."""
    parts: dict[str, dict[str, Any]] = {"input": {}, "note": {}, "decoder": {}, "target": {}}
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
    pad = int(tensors["pad_token"])
    return Examples(
        parts["input"],
        parts["target"],
        pad,
        parts["note"],
        masking,
        decoder=parts["decoder"],
        parts=int(tensors["parts"]) if "parts" in tensors else 1,
    )


def tokenizer_digest(tokenizer: Any) -> str:
    """SHA-256 of everything that decides into which tokens a text is split."""
    if tokenizer.is_fast:
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        del rules["truncation"], rules["padding"]  # left over from the last call
    else:
        rules = [sorted(tokenizer.get_vocab().items()), _vocabulary_files(tokenizer), _options(tokenizer)]
    beside = [tokenizer.model_input_names, tokenizer.special_tokens_map, tokenizer.truncation_side]
    parts = [type(tokenizer).__name__, rules, *beside]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _vocabulary_files(tokenizer: Any) -> list[str]:
    """SHA-256 of each file that a slow tokenizer writes: words, merges, a SentencePiece model."""
    with TemporaryDirectory() as folder:
        return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in tokenizer.save_vocabulary(folder)]


def _options(tokenizer: Any) -> dict[str, str]:
    """The options that a slow tokenizer was created with, without its origin."""
    return {
        name: str(value)
        for name, value in sorted(tokenizer.init_kwargs.items())
        if name not in _ORIGIN_OPTIONS and not name.endswith("_file")
    }


def _rows(tensor: Tensor, lengths: Tensor) -> Sequence[NDArray[np.int32]]:
    return np.split(tensor.numpy(), np.cumsum(lengths.numpy())[:-1])
