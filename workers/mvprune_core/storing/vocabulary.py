"""Trimming the vocabulary to the tokens that the data uses, and those that compose any other text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import tokenizers
import torch

from mvprune_core.tasks.batching import Examples

_WORD_PIECE = "WordPiece"


def trim_vocabulary(model: Any, tokenizer: Any, splits: Iterable[Examples]) -> str:
    """Sets the embedding of every token that is not kept to 0, in place, and takes it out of the tokenizer.

    Kept are the tokens of the examples, special tokens, and of a WordPiece tokenizer those that compose all others,
    such as single characters. Its other tokens are removed from it, so that it splits their words into kept pieces: no
    text becomes unknown by that, and the examples are read as before. Ids do not change, and the artifact does not
    store rows of zeros. Other tokenizers do not change; a later text with another token has no meaning there.

    Args:
        model: a transformers model.
        tokenizer: its tokenizer.
        splits: the examples whose tokens are kept.

    Returns:
        a note on what is kept.
    """
    weight = model.get_input_embeddings().weight
    kept = np.zeros(len(weight), np.bool_)
    kept[tokenizer.all_special_ids] = True
    for examples in splits:
        kept[examples.pad_token] = True
        for ids in examples.inputs["input_ids"]:
            kept[ids] = True
    used, total = int(kept.sum()), len(tokenizer)
    backend = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {"model": {}}
    composes = backend["model"].get("type") == _WORD_PIECE
    if composes:
        _keep_pieces(tokenizer, backend, kept)
    with torch.no_grad():
        weight[torch.from_numpy(~kept).to(weight.device)] = 0
    others = (
        f", and {int(kept.sum()) - used:,} that compose the others: the tokenizer splits all other words into these"
        if composes
        else "; the tokenizer is no WordPiece tokenizer, so any other token has a zero embedding"
    )
    return f"the vocabulary is trimmed to {int(kept.sum()):,} of {total:,} tokens: {used:,} of the data{others}"


def _keep_pieces(tokenizer: Any, backend: dict[str, Any], kept: np.ndarray[Any, Any]) -> None:
    """Marks the word pieces that compose any text, and leaves only what is kept in the tokenizer."""
    wordpiece = backend["model"]
    vocabulary: dict[str, int] = wordpiece["vocab"]
    kept[[token["id"] for token in backend["added_tokens"]]] = True
    prefix = wordpiece["continuing_subword_prefix"]
    pieces = {word for word, index in vocabulary.items() if index < len(kept) and kept[index]}
    pieces.add(wordpiece["unk_token"])
    for word in sorted(vocabulary, key=lambda word: (len(word.removeprefix(prefix)), word)):
        if word not in pieces and not _composed(word, pieces, prefix):
            pieces.add(word)
    wordpiece["vocab"] = {word: vocabulary[word] for word in vocabulary if word in pieces}
    kept[[index for index in wordpiece["vocab"].values() if index < len(kept)]] = True
    tokenizer._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(backend))


def _composed(word: str, pieces: Collection[str], prefix: str) -> bool:
    """Whether WordPiece, which takes the longest piece first, splits a token into shorter pieces without a rest."""
    start = prefix if word.startswith(prefix) else ""
    rest = word.removeprefix(prefix)
    while rest:
        end = next((end for end in range(len(rest), 0, -1) if start + rest[:end] in pieces), 0)
        if not end:
            return False
        start, rest = prefix, rest[end:]
    return True
