"""Which weights are prunable: the matrices of the Transformer's blocks, in any architecture."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.common.blocks import in_block
from mvprune_core.errors import CompressionError, Reason


def prunable_layers(
    model: nn.Module, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> dict[str, nn.Linear | Conv1D]:
    """The layers whose weights are pruned, by name: `nn.Linear` and GPT-2's `Conv1D`.

    By default these are all layers in numbered blocks: attention and feed-forward matrices of encoder and decoder, but
    not norms, biases, pooler and task head. Embeddings, and weights tied to them, are never pruned. A weight that
    several layers share (tied matrices, ALBERT's blocks) counts once, under its first name, and stays dense if one of
    its names is excluded.

    Args:
        model: the model.
        include: shell patterns of names (`*.attention.*`), in place of the default.
        exclude: shell patterns of names to leave dense.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, no layer matches a pattern, or none is left to prune.
    """
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D)}
    for field, patterns in (("include", include), ("exclude", exclude)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in linear):
                blocks = [name for name in linear if in_block(name)]
                raise CompressionError(
                    Reason.UNSUPPORTED_ARCHITECTURE,
                    f"{field} must match the name of a layer, such as {', '.join(blocks[:6])}, got {pattern!r}",
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
            "the model must have an nn.Linear in a numbered block (such as encoder.layer.0) that include and exclude "
            f"leave to prune, got a {type(model).__name__}; give a Transformer encoder or decoder",
        )
    return layers


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
