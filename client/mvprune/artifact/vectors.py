"""The vectors of texts: pooled from a model's last hidden states, and added to its output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mvprune.artifact.errors import ArtifactError
from mvprune.sources.model_config import CONFIG_FILE
from mvprune.sources.sentence_transformers import KEY, SentenceEmbedding, write_sentence_embedding

_SMALLEST = 1e-9  # tokens, where a text has none


def sentence_embedding_of(config: Any) -> SentenceEmbedding | None:
    """How a model makes vectors of texts, by its config; None: it makes none.

    Raises:
        ArtifactError: the config says something that is not possible.
    """
    try:
        return SentenceEmbedding.of_config(config)
    except ValueError as error:
        raise ArtifactError(f"{CONFIG_FILE}: {error}") from error


def vectors_of(model: Any) -> SentenceEmbedding | None:
    """How a model makes vectors of texts; None: it has a head, or its config does not say it. A model with a head may
    have the config of one that made vectors.

    Raises:
        ArtifactError: the config says something that is not possible.
    """
    return sentence_embedding_of(model.config) if model.base_model is model else None


def pooled(states: Tensor, mask: Tensor, how: SentenceEmbedding) -> Tensor:
    """The vectors of texts, shape (texts, width), float32.

    Args:
        states: last hidden states, (texts, tokens, width).
        mask: which tokens are no padding, (texts, tokens).
        how: the pooling.
    """
    states, shown = states.float(), mask.unsqueeze(-1).to(torch.float32)
    match how.pooling_mode:
        case "cls":
            first = mask.int().argmax(1)
            found = states[torch.arange(len(states), device=states.device), first]
        case "lasttoken":
            last = mask.shape[1] - 1 - mask.int().flip(1).argmax(1)
            found = states[torch.arange(len(states), device=states.device), last]
        case "max":
            found = states.masked_fill(shown == 0, torch.finfo(torch.float32).min).amax(1)
        case _:
            found = (states * shown).sum(1) / shown.sum(1).clamp_min(_SMALLEST)
    return functional.normalize(found, dim=-1) if how.normalize else found


def add_vectors(model: nn.Module, how: SentenceEmbedding) -> None:
    """Makes each output of a model have the vectors of its texts, as `sentence_embedding`."""

    def add(_: nn.Module, args: tuple[Any, ...], given: Mapping[str, Any], output: Any) -> Any:
        states = output["last_hidden_state"]
        mask = given.get("attention_mask", args[1] if len(args) > 1 else None)
        output[KEY] = pooled(states, states.new_ones(states.shape[:2]) if mask is None else mask, how)
        return output

    model.register_forward_hook(add, with_kwargs=True)


def write_vectors(folder: Path, model: Any) -> None:
    """Writes the files of sentence-transformers for a model that makes vectors; nothing for another one."""
    if found := vectors_of(model):
        write_sentence_embedding(folder, found, model.config.hidden_size)
