"""Trimming the embeddings to the tokens that the data uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from mvprune_core.batching import Examples


def trim_vocabulary(model: Any, tokenizer: Any, splits: Iterable[Examples]) -> None:
    """Sets the embedding of every token that is in no example and not special to 0, in place.

    The vocabulary and the tokenizer do not change; the artifact does not store rows of zeros. In later texts such
    tokens have no meaning for the model, so this suits tasks in which later texts have the same words.

    Args:
        model: a transformers model.
        tokenizer: its tokenizer.
        splits: the examples whose tokens are kept.
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
