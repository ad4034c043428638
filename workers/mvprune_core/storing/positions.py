"""Trimming the positions to those of the longest input."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mvprune.artifact.positions import first_position, position_tables
from mvprune.sources.model_types import TRIMMABLE, problem_with_trimming
from mvprune_core.base.errors import CompressionError, Reason


def can_trim_positions(model: Any) -> bool:
    """Whether `trim_positions` knows the architecture, and the model has one table of positions."""
    return model.config.model_type in TRIMMABLE and len(position_tables(model)) == 1


def check_positions(model: Any) -> None:
    """Checks that the positions of a model can be trimmed.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, they cannot.
    """
    if not can_trim_positions(model):
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE, f"trim_positions {problem_with_trimming(type(model).__name__)}"
        )


def rows_for(model: nn.Module, max_length: int) -> int:
    """Rows of the table of positions that inputs of at most `max_length` tokens need: at most those that it has."""
    (table,) = position_tables(model).values()
    return min(table.num_embeddings, first_position(table) + max_length)


def trim_positions(model: Any, tokenizer: Any, max_length: int) -> str:
    """Removes, in place, the embeddings of the positions that inputs of at most `max_length` tokens do not have.

    The config and the tokenizer then say the same: `max_position_embeddings`, and `model_max_length`, to which a
    tokenizer cuts longer texts.

    Args:
        model: one that `check_positions` accepts.
        tokenizer: its tokenizer.
        max_length: tokens of the longest input.

    Returns:
        a note on what is kept.
    """
    ((name, table),) = position_tables(model).items()
    before, rows = table.num_embeddings, rows_for(model, max_length)
    if rows == before:
        return f"the positions are not trimmed: inputs of max_length {max_length:,} tokens have all {before:,} of them"
    with torch.no_grad():
        table.weight = nn.Parameter(table.weight[:rows].clone(), table.weight.requires_grad)
    table.num_embeddings = rows
    owner = model.get_submodule(name.rpartition(".")[0])
    for each, buffer in list(owner.named_buffers(recurse=False)):  # position_ids, and the default token_type_ids
        if buffer.shape[-1] == before:
            setattr(owner, each, buffer[..., :rows].clone())
    model.config.max_position_embeddings = rows
    tokenizer.model_max_length = min(tokenizer.model_max_length, max_length)
    return (
        f"the positions are trimmed to {rows:,} of {before:,}: the model takes inputs of at most {max_length:,} "
        "tokens, and its tokenizer cuts longer ones to that if it is called with truncation=True"
    )
