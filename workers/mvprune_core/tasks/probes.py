"""Short made-up inputs, which show how a model computes whatever the data is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mvprune_core.tasks.batching import Examples, pad_token

_LENGTHS = (1, 4, 9, 24)  # tokens of a text


def probes(tokenizer: Any, longest: int) -> Examples:
    """Inputs of several lengths, their tokens drawn from the vocabulary, between the tokenizer's special tokens.

    Args:
        tokenizer: of the model.
        longest: tokens of the longest input.
    """
    before, after = frame(tokenizer)
    special = set(tokenizer.all_special_ids)
    known = np.array([number for number in sorted(tokenizer.get_vocab().values()) if number not in special], np.int32)
    draw, room = np.random.default_rng(0), max(1, longest - len(before) - len(after))
    lengths = sorted({min(length, room) for length in _LENGTHS})
    rows = [np.concatenate([before, draw.choice(known, length), after]) for length in lengths]
    return Examples({"input_ids": rows}, {}, pad_token(tokenizer))


def frame(tokenizer: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The special tokens that the tokenizer puts before and after a text."""
    probe = tokenizer("a", return_special_tokens_mask=True)
    ids = np.array(probe["input_ids"], dtype=np.int32)
    text = np.flatnonzero(np.array(probe["special_tokens_mask"]) == 0)
    if not len(text):  # it knows no letters
        return ids, ids[:0]
    return ids[: text[0]], ids[text[-1] + 1 :]
