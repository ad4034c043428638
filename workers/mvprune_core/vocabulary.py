"""Embeddings trimmed to the tokens that a task's data uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from mvprune_core.batching import Examples


def trim_vocabulary(model: Any, tokenizer: Any, splits: Iterable[Examples]) -> None:
    """Zeros, in place, the embedding of every token that is in no example and not special.

    The vocabulary and the tokenizer stay as they are; the artifact does not store rows of zeros. A later text with such
    a token reads as if the token had no meaning, so this suits a task whose data is all there will be.

    Args:
        model: a transformers model.
        tokenizer: its tokenizer.
        splits: all examples that count as used.
    """
    weight = model.get_input_embeddings().weight
    unused = np.ones(len(weight), np.bool_)
    unused[tokenizer.all_special_ids] = False
    for examples in splits:
        unused[examples.pad_token] = False
        for ids in examples.inputs["input_ids"]:
            unused[ids] = False
    with torch.no_grad():
        weight[torch.from_numpy(unused).to(weight.device)] = 0
