"""Tokenised examples, cut into batches of similar length and padded no further than needed, or little further."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mvprune_core.errors import CompressionError, Reason

# Batches are cut from pools this many batches large, sorted by length: little padding, still well mixed.
_POOL = 50
_TOKENIZE_AT_ONCE = 1000
_LENGTHS_AN_OCTAVE = 8

IGNORED = -100  # the label that PyTorch's cross-entropy leaves out

Indices = NDArray[np.int64]
Ragged = Sequence[NDArray[np.int32]]
Side = Literal["right", "left"]
_Id = TypeVar("_Id", np.int32, np.int64)


@dataclass(frozen=True)
class TokenMasking:
    """How the tokens of a training batch are hidden for masked language modelling.

    As for BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3.1): a token is chosen with
    `probability`; of the chosen, 80 % become the mask, 10 % a random token, 10 % stay.

    Attributes:
        probability: of a token to be chosen.
        mask_token: id of the mask.
        vocabulary: random tokens have ids below this.
    """

    probability: float
    mask_token: int
    vocabulary: int

    def hide(
        self, ids: NDArray[_Id], labels: NDArray[_Id], random: np.random.Generator
    ) -> tuple[NDArray[_Id], NDArray[_Id]]:
        """Ids with the chosen tokens hidden, and labels at these tokens alone.

        Args:
            ids: any shape.
            labels: the same shape; tokens with the label −100 are never chosen. At least one of the others of each
                row, the last dimension, always is: what has no labels has no loss.
            random: what is drawn from.
        """
        allowed = labels != IGNORED
        draws = random.random(ids.shape)
        lowest = np.where(allowed, draws, np.inf).min(axis=-1, keepdims=True)
        chosen = allowed & (draws <= np.maximum(lowest, self.probability))
        fate = random.random(ids.shape)
        others = random.integers(self.vocabulary, size=ids.shape, dtype=ids.dtype)
        hidden, targets = ids.copy(), np.full_like(labels, IGNORED)
        hidden[chosen & (fate < 0.8)] = self.mask_token
        replaced = chosen & (fate >= 0.8) & (fate < 0.9)
        hidden[replaced] = others[replaced]
        targets[chosen] = labels[chosen]
        return hidden, targets


@dataclass(frozen=True)
class Examples:
    """One split, tokenised.

    Attributes:
        inputs: by the name of the model's argument (input_ids, token_type_ids, labels of tokens): one int32 array for
            each example, as long as its input_ids.
        targets: by the name of the model's argument (labels, start_positions): a tensor, one row for each example.
        pad_token: id that fills up input_ids.
        notes: what evaluation has to know of an example and the model does not: one int32 array for each example.
        masking: how the tokens of a batch are hidden; None: they are not.
        few_lengths: batches are padded to `rounded_length`, so that few shapes occur.
        padding_side: where batches are padded, see `mvprune_core.forward.padding_side`.
    """

    inputs: Mapping[str, Ragged]
    targets: Mapping[str, Tensor]
    pad_token: int
    notes: Mapping[str, Ragged] = field(default_factory=dict)
    masking: TokenMasking | None = None
    few_lengths: bool = False
    padding_side: Side = "right"

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @property
    def per_token(self) -> bool:
        """Whether tokens have labels: the loss is then a mean over them, and not over examples."""
        return "labels" in self.inputs

    @cached_property
    def lengths(self) -> Indices:
        """Tokens of each example, shape (examples,)."""
        return np.array([len(ids) for ids in self.inputs["input_ids"]], dtype=np.int64)

    def batch(
        self, indices: Indices, device: torch.device, random: np.random.Generator | None = None
    ) -> dict[str, Tensor]:
        """Arguments of the model's forward pass; inputs are (batch, tokens), padded on `padding_side`.

        Args:
            indices: of the examples, shape (batch,).
            device: where the tensors go.
            random: what the masking draws from; needed where there is one, not used otherwise.
        """
        lengths = self.lengths[indices]
        tokens = lengths.max()
        if self.few_lengths:
            tokens = min(rounded_length(tokens), self.lengths.max())  # a model takes no more than its positions
        begins = tokens - lengths if self.padding_side == "left" else np.zeros_like(lengths)
        padded = {
            name: _pad([column[i] for i in indices], begins, tokens, self._filler(name))
            for name, column in self.inputs.items()
        }
        if self.masking is not None:
            if random is None:
                raise ValueError("these examples are masked anew in each batch; a random generator is needed")
            hidden, labels = self.masking.hide(padded["input_ids"], padded["labels"], random)
            padded |= {"input_ids": hidden, "labels": labels}
        places = np.arange(tokens) - begins[:, None]
        padded["attention_mask"] = ((places >= 0) & (places < lengths[:, None])).astype(np.int64)
        batch = {name: torch.from_numpy(column) for name, column in padded.items()}
        batch |= {name: target[torch.from_numpy(indices)] for name, target in self.targets.items()}
        return {name: value.to(device, non_blocking=True) for name, value in batch.items()}

    def _filler(self, name: str) -> int:
        return {"input_ids": self.pad_token, "labels": IGNORED}.get(name, 0)


def rounded_length(tokens: int) -> int:
    """The next of eight lengths between each power of two and the one after: at most an eighth more than `tokens`."""
    step = max(1, (1 << (int(tokens) - 1).bit_length()) // (2 * _LENGTHS_AN_OCTAVE))
    return math.ceil(tokens / step) * step


def _pad(rows: Ragged, begins: Indices, tokens: int, filler: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), tokens), filler, dtype=np.int64)
    for target, begin, row in zip(padded, begins, rows, strict=True):
        target[begin : begin + len(row)] = row
    return padded


def check_offsets(tokenizer: Any) -> None:
    """Raises CompressionError INVALID_MODEL where the tokenizer cannot say which characters a token stands for."""
    if not tokenizer.is_fast:
        raise CompressionError(
            Reason.INVALID_MODEL, "the model's tokenizer cannot say where its tokens stand; a tokenizer.json is needed"
        )


def tokenize(tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, **options: Any) -> Iterator[Any]:
    """Encodings of `texts` (with `pairs`) in order, a thousand at a time: they take far more memory than inputs."""
    for start in range(0, len(texts), _TOKENIZE_AT_ONCE):
        portion = slice(start, start + _TOKENIZE_AT_ONCE)
        second = None if pairs is None else pairs[portion]
        yield tokenizer(texts[portion], second, return_attention_mask=False, **options)


def add_inputs(
    inputs: dict[str, list[NDArray[np.int32]]], tokenizer: Any, encodings: Any, rows: Sequence[int] | None = None
) -> None:
    """Appends the model's inputs among `encodings` to `inputs`; of `rows` alone, where these are given."""
    for name in tokenizer.model_input_names:
        if name in encodings and name != "attention_mask":
            column = encodings[name] if rows is None else [encodings[name][row] for row in rows]
            inputs.setdefault(name, []).extend(np.array(row, dtype=np.int32) for row in column)


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


def trained_on(lengths: Indices, batch_size: int, seed: int, steps: int) -> Indices:
    """The examples of the first `steps` training batches, ascending."""
    if steps >= math.ceil(len(lengths) / batch_size):
        return np.arange(len(lengths))
    return np.unique(np.concatenate([*itertools.islice(training_batches(lengths, batch_size, seed), steps)]))


def evaluation_batches(lengths: Indices, batch_size: int) -> list[Indices]:
    """Every example once, longest first: each batch fits into memory that those before it have left."""
    return _cut(np.argsort(-lengths, kind="stable"), batch_size)


def _by_length(order: Indices, lengths: Indices, batch_size: int) -> list[Indices]:
    return _cut(order[np.argsort(lengths[order], kind="stable")], batch_size)


def _cut(order: Indices, batch_size: int) -> list[Indices]:
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
