"""Which weights are prunable: the matrices of the Transformer's blocks, in any architecture."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.spec.selected_layers import select_layers
from mvprune_core.base.errors import CompressionError, Reason


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
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    shared: dict[int, list[str]] = {}
    for name, module in linear.items():
        shared.setdefault(id(module.weight), []).append(name)
    layers = [names for weight, names in shared.items() if weight not in embedded]
    others = [name for weight, names in shared.items() if weight in embedded for name in names]
    found = select_layers(layers, others, include, exclude)
    if found.problem:
        raise CompressionError(Reason.UNSUPPORTED_ARCHITECTURE, f"{found.field} {found.problem}")
    if not found.names:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            "the model must have an nn.Linear in a numbered block (such as encoder.layer.0), got a "
            f"{type(model).__name__}; give a Transformer encoder or decoder",
        )
    return {name: linear[name] for name in found.names}
