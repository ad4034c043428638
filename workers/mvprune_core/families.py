"""Which weights are pruned: the matrices of the Transformer's blocks, whatever the architecture calls them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune_core.errors import CompressionError, Reason


def in_block(name: str) -> bool:
    """Whether a dotted name lies inside a numbered block, as in `encoder.layer.0.output.dense`: the encoder."""
    return any(part.isdecimal() for part in name.split("."))


def prunable_layers(
    model: nn.Module, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> dict[str, nn.Linear | Conv1D]:
    """The layers whose weights are pruned, by name: `nn.Linear` and GPT-2's `Conv1D`.

    By default every one inside a numbered block: attention and feed-forward matrices of encoder and decoder, never
    norms, biases, pooler and task head. Embeddings are never pruned, nor what is tied to them. A weight that several
    layers share (ALBERT's blocks are one block applied many times, tied matrices) counts once, under its first name,
    and is left dense where one of its names is excluded.

    Args:
        model: the model.
        include: patterns as of a shell over names (`*.attention.*`), in place of the default.
        exclude: patterns over names that are left dense all the same.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, the model has no such layer, or none that a pattern matches.
    """
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    for field, patterns in (("include", include), ("exclude", exclude)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in linear):
                blocks = [name for name in linear if in_block(name)]
                raise CompressionError(
                    Reason.UNSUPPORTED_ARCHITECTURE,
                    f"{field}: no layer matches {pattern!r}; the layers are named like {', '.join(blocks[:6])}",
                )
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    shared: dict[int, list[str]] = {}
    for name, module in linear.items():
        shared.setdefault(id(module.weight), []).append(name)
    layers = {
        names[0]: linear[names[0]]
        for weight, names in shared.items()
        if weight not in embedded
        and any(_matches(name, include) if include else in_block(name) for name in names)
        and not any(_matches(name, exclude) for name in names)
    }
    if not layers:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"{type(model).__name__} has no nn.Linear inside a numbered block (such as encoder.layer.0) "
            "that include and exclude leave, so there is nothing to prune; give a Transformer encoder or decoder",
        )
    return layers


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
