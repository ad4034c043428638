"""The numbered blocks of a Transformer, found by the names of modules and parameters."""

from __future__ import annotations


def in_block(name: str) -> bool:
    """Whether a module or parameter is in a numbered block, as `encoder.layer.0.output.dense` is."""
    return block_list(name) is not None


def block_list(name: str) -> str | None:
    """The list of blocks that a module or parameter is in: `encoder.layer` in the example; None if it is in none."""
    parts = name.split(".")
    return next((".".join(parts[:index]) for index, part in enumerate(parts) if part.isdecimal()), None)


def without_number(name: str) -> str:
    """The name of a module or parameter without the number of its block: `encoder.layer.output.dense`."""
    blocks = block_list(name)
    if blocks is None:
        return name
    return blocks + "." + name.removeprefix(f"{blocks}.").partition(".")[2]
