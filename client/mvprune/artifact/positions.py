"""How long an input of a model may be: absolute positions have an embedding each."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

_TABLE = "position_embeddings"


def position_tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """The tables of absolute positions by name; {}: the model has relative positions only, or other names."""
    modules = model.named_modules()
    return {name: one for name, one in modules if name.endswith(_TABLE) and isinstance(one, nn.Embedding)}


def first_position(table: nn.Embedding) -> int:
    """The row of an input's first token: RoBERTa and similar models count from the row after that of padding."""
    return 0 if table.padding_idx is None else table.padding_idx + 1


def longest_input(model: Any) -> int | None:
    """Tokens of the longest input that has positions; None: the model has no limit."""
    padded = [table for table in position_tables(model).values() if table.padding_idx is not None]
    if padded:
        return min(table.num_embeddings - first_position(table) for table in padded)
    config = getattr(model.config, "encoder", model.config)  # of two models, the one that reads the input
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None  # XLNet: -1


def refuse_longer_inputs(model: nn.Module) -> None:
    """Makes a model raise ValueError for an input with more tokens than its tables have positions.

    torch's own error for it is an index that is out of range, or shapes that do not fit.
    """
    tables = position_tables(model).values()
    if tables:
        limit = min(table.num_embeddings - first_position(table) for table in tables)
        model.register_forward_pre_hook(partial(_refuse_longer, limit), with_kwargs=True)


def _refuse_longer(limit: int, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    ids = kwargs.get("input_ids", args[0] if args else None)
    if ids is not None and ids.shape[-1] > limit:
        raise ValueError(
            f"input_ids must have at most {limit} tokens, the model's positions, got {ids.shape[-1]}; cut the input: "
            "tokenizer(text, truncation=True)"
        )
