"""Masked language modelling: the hidden tokens of a text, from those around them.

Texts are joined and cut into blocks as long as the model's input. In training, every batch hides other tokens; in
evaluation always the same ones, so that results can be compared (Devlin et al. 2019, https://arxiv.org/abs/1810.04805,
section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from mvprune.data.loading import PassageData
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Objective, forward_passes
from mvprune_core.tasks.batching import IGNORED, Examples, Indices, TokenMasking, pad_token, tokenize
from mvprune_core.tasks.losses import CrossEntropy, Loss, OwnLoss
from mvprune_core.tasks.probes import frame
from mvprune_core.tasks.resampling import SampleMetric, added

HIDDEN = 0.15  # of the tokens
EVALUATION_SEED = 0
EVALUATION_BATCH = 8  # logits over a vocabulary are large
UNKNOWN_WORD = "<unk>"  # as corpora of words, such as WikiText, write it
_LARGEST_LOSS = 700.0  # its exponential is a finite number


@dataclass(frozen=True)
class MaskedLanguageModelling(Objective):
    """The hidden tokens of a text.

    It cannot be distilled: each batch hides other tokens, so that no logits can be stored. It has no sanity check: none
    of tens of thousands of classes is frequent, and their names are the tokenizer's.
    """

    data: PassageData
    kind: ClassVar[str] = "masked-lm"

    def loss(self, config: Any) -> Loss:
        return OwnLoss() if config.is_encoder_decoder else CrossEntropy()  # BART's decoder reads the labels

    def configure(self, config: Any) -> bool:
        return False  # a pretrained head has the right shape, but was not trained on these texts, as the pruned one is

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        return _blocks(self.data.train, tokenizer, max_length)

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        blocks = _blocks(self.data.validation, tokenizer, max_length)
        masking = _masking(tokenizer)
        random = np.random.default_rng(EVALUATION_SEED)
        hidden = [
            masking.hide(ids, labels, random)
            for ids, labels in zip(blocks.inputs["input_ids"], blocks.inputs["labels"], strict=True)
        ]
        inputs = {"input_ids": [ids for ids, _ in hidden]}
        return replace(blocks, inputs=inputs, notes={"label": [labels for _, labels in hidden]}, masking=None)

    def predict(
        self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE
    ) -> list[tuple[float, int, int]]:
        """For each batch the sum of the losses, how many tokens are right, and of how many."""

        def read(indices: Indices, output: Any) -> tuple[float, int, int]:
            labels = [examples.notes["label"][index] for index in indices]
            places = [np.flatnonzero(row != IGNORED) for row in labels]
            rows = np.repeat(np.arange(len(labels)), [len(row) for row in places])
            logits = output.logits[torch.from_numpy(rows), torch.from_numpy(np.concatenate(places))].float()
            expected = np.concatenate([row[place] for row, place in zip(labels, places, strict=True)])
            target = torch.from_numpy(expected).long().to(logits.device)
            loss = cross_entropy(logits, target, reduction="sum").item()
            return loss, int((logits.argmax(dim=-1) == target).sum()), len(expected)

        passes = forward_passes(model, examples, device, read, batch_size=EVALUATION_BATCH, group=group)
        return [found for _, found in passes]

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of the hidden tokens' frequencies, whatever the text."""
        hidden = np.concatenate([labels[labels != IGNORED] for labels in examples.notes["label"]])
        counts = np.unique(hidden, return_counts=True)[1]
        loss = -float(counts @ np.log(counts / len(hidden)))
        return [self.measure([(loss, int(counts.max()), len(hidden))])]

    def measure(self, predictions: list[tuple[float, int, int]]) -> dict[str, float]:
        return _metrics(*(sum(each) for each in zip(*predictions, strict=True)))

    def sample_metric(self, predictions: list[tuple[float, int, int]]) -> tuple[int, SampleMetric] | None:
        """Of batches: neighbouring blocks are of one text, and their losses are alike."""
        found, name = np.array(predictions), self.data.task.primary_metric
        return len(found), lambda counts: _metrics(*added(counts, found))[name]


def _metrics(loss: float, right: float, tokens: float) -> dict[str, float]:
    return {"perplexity": math.exp(min(loss / tokens, _LARGEST_LOSS)), "accuracy": right / tokens}


def _masking(tokenizer: Any) -> TokenMasking:
    if tokenizer.mask_token_id is None:
        raise CompressionError(Reason.INVALID_MODEL, "the model's tokenizer has no mask token, which masked-lm needs")
    return TokenMasking(HIDDEN, tokenizer.mask_token_id, len(tokenizer))


def _blocks(texts: Sequence[str], tokenizer: Any, max_length: int) -> Examples:
    """The texts, joined and cut; labels are the tokens themselves, −100 for special and unknown ones."""
    unknown = tokenizer.unk_token or UNKNOWN_WORD
    written = [text.replace(UNKNOWN_WORD, unknown) for text in texts]
    ids: NDArray[np.int32] = np.concatenate(
        [
            np.array(row, dtype=np.int32)
            for encodings in tokenize(tokenizer, written, None, add_special_tokens=False, verbose=False)
            for row in encodings["input_ids"]
        ]
    )
    before, after = frame(tokenizer)
    size = max_length - len(before) - len(after)
    if size < 1:
        least = len(before) + len(after) + 1
        raise ValueError(f"training.max_length must be at least {least} for masked-lm, got {max_length}")
    special = np.array(tokenizer.all_special_ids, dtype=np.int32)
    inputs: dict[str, list[NDArray[np.int32]]] = {"input_ids": [], "labels": []}
    for start in range(0, len(ids), size):
        block = np.concatenate([before, ids[start : start + size], after])
        labels = np.where(np.isin(block, special), np.int32(IGNORED), block)
        if (labels != IGNORED).any():
            inputs["input_ids"].append(block)
            inputs["labels"].append(labels)
    if not inputs["labels"]:
        raise CompressionError(Reason.INVALID_DATASET, "the texts have no token that the model's tokenizer knows")
    return Examples(inputs, {}, pad_token(tokenizer), masking=_masking(tokenizer))
