"""Tokenised examples in batches of similar length, padded to the longest example or to a slightly rounded length."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mvprune_core.base.errors import CompressionError, Reason

# Examples are sorted by length within pools of this many batches: little padding, and batches stay well mixed.
_POOL = 50
_TOKENIZER_BATCH = 1000
_LENGTHS_PER_OCTAVE = 8

IGNORED = -100  # the label that PyTorch's cross-entropy leaves out
DECODER_IDS, DECODER_MASK = "decoder_input_ids", "decoder_attention_mask"

Indices = NDArray[np.int64]
Ragged = Sequence[NDArray[np.int32]]
Side = Literal["right", "left"]
_Id = TypeVar("_Id", np.int32, np.int64)


@dataclass(frozen=True)
class TokenMasking:
    """Masks the tokens of a training batch for masked language modelling.

    As for BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3.1): each token is selected with
    `probability`. Of the selected tokens, 80 % become the mask token, 10 % a random token, and 10 % stay.

    Attributes:
        probability: the probability of selecting a token.
        mask_token: id of the mask token.
        vocabulary: random tokens have ids below this.
    """

    probability: float
    mask_token: int
    vocabulary: int

    def hide(
        self, ids: NDArray[_Id], labels: NDArray[_Id], random: np.random.Generator
    ) -> tuple[NDArray[_Id], NDArray[_Id]]:
        """Ids with the selected tokens masked, and labels that are −100 at all other tokens.

        Args:
            ids: token ids, any shape; the last dimension is a row.
            labels: the same shape. Tokens with the label −100 are never selected. At least one other token of each row
                is always selected, because a row without labels has no loss.
            random: the random generator.
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
        pad_token: id that pads input_ids and decoder_input_ids.
        notes: values that evaluation needs and the model does not: one int32 array for each example.
        masking: masks the tokens of each batch; None: no masking.
        few_lengths: whether batches are padded to `rounded_length`, so that few shapes occur.
        padding_side: where batches are padded, see `mvprune_core.models.forward.padding_side`.
        decoder: what the decoder of an encoder-decoder reads and is to answer (decoder_input_ids, labels): one int32
            array for each example, all of one length, another one than its input_ids. Padded on the right.
        parts: texts of an example that the model reads one by one: so many rows of `inputs`, one after the other, whose
            outputs are compared.
        tokenizer: the one that they were made with, where what a model writes becomes text again.
    """

    inputs: Mapping[str, Ragged]
    targets: Mapping[str, Tensor]
    pad_token: int
    notes: Mapping[str, Ragged] = field(default_factory=dict)
    masking: TokenMasking | None = None
    few_lengths: bool = False
    padding_side: Side = "right"
    decoder: Mapping[str, Ragged] = field(default_factory=dict)
    parts: int = 1
    tokenizer: Any = None

    def __len__(self) -> int:
        return len(self.inputs["input_ids"]) // self.parts

    @property
    def texts(self) -> Examples:
        """Each row as an example, without targets."""
        return self if self.parts == 1 else replace(self, targets={}, parts=1)

    @property
    def per_token(self) -> bool:
        """Whether tokens have labels. The loss is then a mean over tokens, not over examples."""
        return "labels" in self.inputs or "labels" in self.decoder

    @cached_property
    def lengths(self) -> Indices:
        """Tokens that the model reads of each example, or of the longest of its texts, shape (examples,)."""
        longest: Indices = self._row_lengths.reshape(-1, self.parts).max(1)
        return longest

    @cached_property
    def _row_lengths(self) -> Indices:
        return np.array([len(ids) for ids in self.inputs["input_ids"]], dtype=np.int64)

    @cached_property
    def output_lengths(self) -> Indices:
        """Tokens of each example that the model has an output for, shape (examples,)."""
        if not self.decoder:
            return self.lengths
        return np.array([len(ids) for ids in self.decoder[DECODER_IDS]], dtype=np.int64)

    def batch(
        self, indices: Indices, device: torch.device, random: np.random.Generator | None = None
    ) -> dict[str, Tensor]:
        """Arguments of the model's forward pass; inputs are (batch · parts, tokens), padded on `padding_side`, those of
        the decoder (batch, target tokens).

        Args:
            indices: indices of the examples, shape (batch,).
            device: the device of the returned tensors.
            random: the random generator of the masking; required if there is masking, else unused.
        """
        rows = (indices[:, None] * self.parts + np.arange(self.parts)).ravel()
        padded, mask = self._padded(self.inputs, self._row_lengths, rows, self.padding_side)
        if self.masking is not None:
            if random is None:
                raise ValueError("random must be given for examples that are masked in each batch, got None")
            hidden, labels = self.masking.hide(padded["input_ids"], padded["labels"], random)
            padded |= {"input_ids": hidden, "labels": labels}
        padded["attention_mask"] = mask
        if self.decoder:
            answers, mask = self._padded(self.decoder, self.output_lengths, indices, "right")
            padded |= answers | {DECODER_MASK: mask}
        batch = {name: torch.from_numpy(column) for name, column in padded.items()}
        batch |= {name: target[torch.from_numpy(indices)] for name, target in self.targets.items()}
        return {name: value.to(device, non_blocking=True) for name, value in batch.items()}

    def _padded(
        self, columns: Mapping[str, Ragged], all_lengths: Indices, indices: Indices, side: Side
    ) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
        """Columns of some examples, each (batch, tokens), and the mask of what is no padding."""
        lengths = all_lengths[indices]
        tokens = lengths.max()
        if self.few_lengths:
            tokens = min(rounded_length(tokens), all_lengths.max())  # a model has no more positions than that
        begins = tokens - lengths if side == "left" else np.zeros_like(lengths)
        padded = {
            name: _pad([column[i] for i in indices], begins, tokens, self._filler(name))
            for name, column in columns.items()
        }
        places = np.arange(tokens) - begins[:, None]
        return padded, ((places >= 0) & (places < lengths[:, None])).astype(np.int64)

    def _filler(self, name: str) -> int:
        return {"input_ids": self.pad_token, DECODER_IDS: self.pad_token, "labels": IGNORED}.get(name, 0)


class Sources(NamedTuple):
    """What a model reads to write texts.

    Attributes:
        examples: with their tokenizer; those of a decoder padded on the left, as the text goes on at the right.
        settings: of `generate`, in place of those of the model.
    """

    examples: Examples
    settings: Mapping[str, Any] = MappingProxyType({})


def output_mask(batch: Mapping[str, Tensor]) -> Tensor:
    """Which tokens of a batch the model has an output for, no padding, shape (batch, tokens): the decoder's, if it
    reads others than the encoder."""
    return batch.get(DECODER_MASK, batch["attention_mask"])


def rounded_length(tokens: int) -> int:
    """The next of eight lengths between each power of two and the one after: at most an eighth more than `tokens`."""
    step = max(1, (1 << (int(tokens) - 1).bit_length()) // (2 * _LENGTHS_PER_OCTAVE))
    return math.ceil(tokens / step) * step


def _pad(rows: Ragged, begins: Indices, tokens: int, filler: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), tokens), filler, dtype=np.int64)
    for target, begin, row in zip(padded, begins, rows, strict=True):
        target[begin : begin + len(row)] = row
    return padded


def check_offsets(tokenizer: Any) -> None:
    """Raises CompressionError INVALID_MODEL if the tokenizer does not give the character offsets of its tokens."""
    if not tokenizer.is_fast:
        raise CompressionError(
            Reason.INVALID_MODEL,
            "the model's tokenizer must give the character offsets of its tokens; put a tokenizer.json into the folder",
        )


def tokenize(tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, **options: Any) -> Iterator[Any]:
    """Encodings of `texts` (with `pairs`) in order, 1,000 at a time: encodings take far more memory than inputs."""
    for start in range(0, len(texts), _TOKENIZER_BATCH):
        portion = slice(start, start + _TOKENIZER_BATCH)
        second = None if pairs is None else pairs[portion]
        yield tokenizer(texts[portion], second, return_attention_mask=False, **options)


def add_inputs(
    inputs: dict[str, list[NDArray[np.int32]]], tokenizer: Any, encodings: Any, rows: Sequence[int] | None = None
) -> None:
    """Appends the model's inputs among `encodings` to `inputs`; only of `rows`, if they are given."""
    for name in tokenizer.model_input_names:
        if name in encodings and name != "attention_mask":
            column = encodings[name] if rows is None else [encodings[name][row] for row in rows]
            inputs.setdefault(name, []).extend(np.array(row, dtype=np.int32) for row in column)


def pad_token(tokenizer: Any) -> int:
    """The id of the padding token; if there is none, as for decoders, of the end-of-text token.

    Raises:
        CompressionError: INVALID_MODEL, the tokenizer has neither.
    """
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise CompressionError(Reason.INVALID_MODEL, "the model's tokenizer has neither a padding nor an end-of-text token")


def training_batches(lengths: Indices, batch_size: int, seed: int) -> Iterator[Indices]:
    """Infinite batches, epoch after epoch, each epoch in a new order; a pure function of the arguments.

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
    """Indices of the examples in the first `steps` training batches, ascending."""
    if steps >= math.ceil(len(lengths) / batch_size):
        return np.arange(len(lengths))
    return np.unique(np.concatenate([*itertools.islice(training_batches(lengths, batch_size, seed), steps)]))


def evaluation_batches(lengths: Indices, batch_size: int) -> list[Indices]:
    """Every example once, longest first: each batch fits into the memory that earlier batches have freed."""
    return _cut(np.argsort(-lengths, kind="stable"), batch_size)


def _by_length(order: Indices, lengths: Indices, batch_size: int) -> list[Indices]:
    return _cut(order[np.argsort(lengths[order], kind="stable")], batch_size)


def _cut(order: Indices, batch_size: int) -> list[Indices]:
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
