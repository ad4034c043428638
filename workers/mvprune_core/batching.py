"""Tokenised examples, cut into batches of similar length and padded no further than needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mvprune_core.errors import CompressionError, Reason

# Batches are cut from pools this many batches large, sorted by length: little padding, still well mixed.
_POOL = 50
_TOKENIZE_AT_ONCE = 1000

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """One split, tokenised.

    Attributes:
        inputs: by the name of the model's argument (input_ids, token_type_ids): one int32 array for each example.
        targets: by the name of the model's argument (labels, start_positions): a tensor, one row for each example.
        pad_token: id that fills up input_ids.
    """

    inputs: Mapping[str, Sequence[NDArray[np.int32]]]
    targets: Mapping[str, Tensor]
    pad_token: int

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @property
    def lengths(self) -> Indices:
        """Tokens of each example, shape (examples,)."""
        return np.array([len(ids) for ids in self.inputs["input_ids"]], dtype=np.int64)

    def batch(self, indices: Indices, device: torch.device) -> dict[str, Tensor]:
        """Arguments of the model's forward pass; inputs are (batch, longest), padded on the right."""
        batch = {name: _pad([column[i] for i in indices], self._filler(name)) for name, column in self.inputs.items()}
        lengths = torch.tensor([len(self.inputs["input_ids"][i]) for i in indices])
        batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        batch |= {name: target[torch.from_numpy(indices)] for name, target in self.targets.items()}
        return {name: value.to(device, non_blocking=True) for name, value in batch.items()}

    def _filler(self, name: str) -> int:
        return self.pad_token if name == "input_ids" else 0


def _pad(rows: Sequence[NDArray[np.int32]], filler: int) -> Tensor:
    padded = np.full((len(rows), max(map(len, rows))), filler, dtype=np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(padded)


def tokenize(tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, **options: Any) -> Iterator[Any]:
    """Encodings of `texts` (with `pairs`) in order, a thousand at a time: they take far more memory than inputs."""
    for start in range(0, len(texts), _TOKENIZE_AT_ONCE):
        portion = slice(start, start + _TOKENIZE_AT_ONCE)
        second = None if pairs is None else pairs[portion]
        yield tokenizer(texts[portion], second, return_attention_mask=False, **options)


def add_inputs(inputs: dict[str, list[NDArray[np.int32]]], tokenizer: Any, encodings: Any) -> None:
    """Appends the model's inputs among `encodings` to `inputs`."""
    for name in tokenizer.model_input_names:
        if name in encodings and name != "attention_mask":
            inputs.setdefault(name, []).extend(np.array(row, dtype=np.int32) for row in encodings[name])


def pad_token(tokenizer: Any) -> int:
    """The padding token; a decoder's end-of-text token where it has none.

    Raises:
        CompressionError: INVALID_MODEL, the tokenizer has neither.
    """
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise CompressionError(Reason.INVALID_MODEL, "the model's tokenizer has neither a padding nor an end-of-text token")


def training_batches(lengths: Indices, batch_size: int, seed: int) -> Iterator[Indices]:
    """Endless batches, epoch after epoch, each epoch in a new order; a pure function of its arguments.

    The last batch of an epoch may be smaller.
    """
    epoch = 0
    while True:
        random = np.random.default_rng((seed, epoch))
        order = random.permutation(len(lengths))
        batches = [
            batch
            for start in range(0, len(order), _POOL * batch_size)
            for batch in _by_length(order[start : start + _POOL * batch_size], lengths, batch_size)
        ]
        for index in random.permutation(len(batches)):
            yield batches[index]
        epoch += 1


def evaluation_batches(lengths: Indices, batch_size: int) -> list[Indices]:
    """Every example once, longest last."""
    return _by_length(np.arange(len(lengths)), lengths, batch_size)


def _by_length(order: Indices, lengths: Indices, batch_size: int) -> list[Indices]:
    ranked = order[np.argsort(lengths[order], kind="stable")]
    return [ranked[start : start + batch_size] for start in range(0, len(ranked), batch_size)]
