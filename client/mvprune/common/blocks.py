"""The numbered blocks of a Transformer, found by the names of modules and parameters."""

from __future__ import annotations


def in_block(name: str) -> bool:
    """Whether a module or parameter is in a numbered block, as `encoder.layer.0.output.dense` is."""
    return block_list(name) is not None


def block_list(name: str) -> str | None:
    """The list of blocks that a module or parameter is in: `encoder.layer` in the example; None if it is in none."""
    parts = name.split(".")
    return next((".".join(parts[:index]) for index, part in enumerate(parts) if part.isdecimal()), None)
