"""Masked language modelling: the hidden tokens of a text, from those around them.

Texts are joined and cut into blocks as long as the model's input. In training, every batch hides other tokens; in
evaluation always the same ones, so that results can be compared (Devlin et al. 2019, https://arxiv.org/abs/1810.04805,
section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.tasks.batching import IGNORED, Examples, TokenMasking, pad_token, tokenize
from mvprune_core.tasks.language import LanguageModelling
from mvprune_core.tasks.losses import CrossEntropy, Loss, OwnLoss
from mvprune_core.tasks.probes import frame

HIDDEN = 0.15  # of the tokens
EVALUATION_SEED = 0
UNKNOWN_WORD = "<unk>"  # as corpora of words, such as WikiText, write it


@dataclass(frozen=True)
class MaskedLanguageModelling(LanguageModelling):
    """The hidden tokens of a text.

    It cannot be distilled: each batch hides other tokens, so that no logits can be stored.
    """

    kind: ClassVar[str] = "masked-lm"

    def loss(self, config: Any) -> Loss:
        return OwnLoss() if config.is_encoder_decoder else CrossEntropy()  # BART's decoder reads the labels

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
