"""Attention heads, feed-forward units and layers: where they are in a model, and models from which some are removed.

A removed head takes its rows of the query, key and value matrices with it, and its columns of the attention's output
matrix; a removed unit takes its row of the first and its column of the second matrix. The biases of these rows go too.
No file says how many are left: the shapes of a block's matrices do.

A removed layer takes all its parameters with it, the others are numbered anew, and the configuration counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mvprune.spec.structures import BLOCKS, LAYER_CLASSES, SHARING, BlockNames, Kind

_SHARED = [LAYER_CLASSES[name] for name in SHARING]  # blocks that are all layers of their model
_HEAD_COUNTS = ("num_attention_heads", "n_heads")  # attributes of attention modules, by architecture
_UNIT_COUNTS = ("intermediate_size", "hidden_dim")  # keys of config.json


@dataclass(frozen=True)
class Structures:
    """The heads, or the units, of one block, or the block itself as one layer of the encoder.

    Attributes:
        kind: which of the three.
        block: name of the block.
        inputs: the layers that have rows for them; of a whole block all but the last.
        output: the layer that has columns for them.
        size: rows, or columns, of each: of a head several, of a unit one, of a whole block all columns.
        attention: the module that knows the number of heads; "" for units.
    """

    kind: Kind
    block: str
    inputs: tuple[str, ...]
    output: str
    size: int
    attention: str

    @property
    def layers(self) -> tuple[str, ...]:
        """All layers that they are parts of."""
        return (*self.inputs, self.output)

    def count(self, model: nn.Module) -> int:
        """How many there are in `model`."""
        return _linear(model, self.output).in_features // self.size


def class_name(module: nn.Module) -> str:
    """Of a class that transformers defines; "" for others, which may have the same names and other parts."""
    kind = type(module)
    return kind.__name__ if kind.__module__.startswith("transformers.") else ""


def find_structures(model: nn.Module) -> Iterator[Structures]:
    """The heads and the units of every block of a known architecture, block by block."""
    for path, names in _blocks(model):
        query, key, value, out, up, down = (f"{path}.{name}" for name in names.matrices)
        attention: Any = model.get_submodule(f"{path}.{names.attention}")
        size = attention.attention_head_size
        yield Structures("heads", path, (query, key, value), out, size, f"{path}.{names.attention}")
        yield Structures("units", path, (up,), down, 1, "")


def shares_layers(model: nn.Module) -> bool:
    """Whether the layers of a model are one and the same block, as in ALBERT."""
    return any(class_name(module) in _SHARED for module in model.modules())


def find_layers(model: nn.Module) -> list[Structures]:
    """The encoder's layers that are blocks of a known architecture, in their order, each with its own weights.

    Empty if they are not all the layers that the configuration counts, or are in several lists.
    """
    blocks = list(_blocks(model))
    lists = {path.rpartition(".")[0] for path, _ in blocks}
    count = getattr(getattr(model, "config", None), "num_hidden_layers", 0)
    if shares_layers(model) or len(lists) != 1 or len(blocks) != count:
        return []
    return [_layer(model, path, names) for path, names in blocks]


def remove_empty_layers(model: Any, layers: Sequence[Structures]) -> dict[str, str]:
    """Removes, in place, the layers whose output matrix is zero, and numbers the others anew.

    The outputs stay the same if such a layer returned its input before, which zeros do not do by themselves: its
    biases and norms stay.

    Args:
        model: with at least one layer that stays.
        layers: those that may be removed, of those that `find_layers` returned.

    Returns:
        The names of the layers that stay: the new one by the old one.
    """
    path = layers[0].block.rpartition(".")[0]
    every: Any = model.get_submodule(path)
    empty = {each.block for each in layers if not _linear(model, each.output).weight.detach().any()}
    kept = [number for number in range(len(every)) if f"{path}.{number}" not in empty]
    model.set_submodule(path, nn.ModuleList([every[number] for number in kept]))
    for new, old in enumerate(kept):
        for module in every[old].modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = new
    model.config.num_hidden_layers = len(kept)
    return {f"{path}.{old}": f"{path}.{new}" for new, old in enumerate(kept)}


def remove_empty(model: nn.Module, structures: Sequence[Structures]) -> dict[Structures, int]:
    """Removes, in place, the heads and units all of whose columns are zero, at most all but one of a block.

    What they compute is multiplied by zero, so the outputs stay the same.

    Returns:
        How many are left.
    """
    return {each: _remove_empty(model, each) for each in structures}


def shrink_to(model: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Makes the blocks of a new model, in place, as small as the tensors with these shapes. Their values are not kept.

    A shape that no number of heads or units gives is left to those who compare the shapes.

    Args:
        model: as its configuration describes it, on any device.
        shapes: of its tensors, by name.
    """
    for each in find_structures(model):
        shape = shapes.get(f"{each.output}.weight", ())
        columns = shape[1] if len(shape) == 2 else 0
        if columns % each.size == 0 and 0 < columns // each.size < each.count(model):
            _keep(model, each, torch.arange(columns // each.size))


def restore_shapes(model: Any) -> list[str]:
    """Adds heads and units of zeros, in place, so that the model has a shape that its configuration can describe.

    A configuration has one number of units for all blocks, here that of the largest block, and heads of hidden size /
    number of heads, so that all heads are there again. The outputs stay the same.

    Returns:
        What was added, in words; empty if nothing was removed before.
    """
    structures = list(find_structures(model))
    units = [each for each in structures if each.kind == "units"]
    heads = [each for each in structures if each.kind == "heads"]
    notes = []
    if added := sum(_pad(model, each, model.config.num_attention_heads) for each in heads):
        notes.append(f"{_removed(added, 'head')} written as zeros, because config.json cannot describe such layers")
    most = max((each.count(model) for each in units), default=0)
    if added := sum(_pad(model, each, most) for each in units):
        notes.append(f"{_removed(added, 'unit')} written as zeros, because config.json has one size for all layers")
    for name in _UNIT_COUNTS:
        if units and hasattr(model.config, name):
            setattr(model.config, name, most)
    return notes


def _removed(count: int, name: str) -> str:
    return f"1 removed {name} is" if count == 1 else f"{count} removed {name}s are"


def _blocks(model: nn.Module) -> Iterator[tuple[str, BlockNames]]:
    """The names of the blocks of a known architecture, and of their parts. Not of a pair of an encoder and a decoder,
    whose configuration counts the heads and the layers of each part, and whose decoder has a second attention."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return
    for path, module in model.named_modules():
        names = BLOCKS.get(class_name(module))
        if names is not None and all(type(module.get_submodule(name)) is nn.Linear for name in names.matrices):
            yield path, names


def _layer(model: nn.Module, path: str, names: BlockNames) -> Structures:
    *inputs, output = (f"{path}.{name}" for name in names.matrices)
    return Structures("layers", path, tuple(inputs), output, _linear(model, output).in_features, "")


def _linear(model: nn.Module, name: str) -> nn.Linear:
    layer = model.get_submodule(name)
    if not isinstance(layer, nn.Linear):
        raise TypeError(f"{name} must be an nn.Linear, got {type(layer).__name__}")
    return layer


def _remove_empty(model: nn.Module, each: Structures) -> int:
    weight = _linear(model, each.output).weight.detach()
    filled = (weight != 0).any(0).view(-1, each.size).any(1)
    if not filled.any():
        filled[0] = True
    kept = filled.nonzero().squeeze(1)
    if len(kept) < len(filled):
        _keep(model, each, kept)
    return len(kept)


def _keep(model: nn.Module, each: Structures, kept: Tensor) -> None:
    """Keeps only the heads or units with these numbers."""

    def take(tensor: Tensor, axis: int) -> Tensor:
        places = kept.to(tensor.device).unsqueeze(1) * each.size + torch.arange(each.size, device=tensor.device)
        return tensor.detach().index_select(axis, places.reshape(-1))

    _change(model, each, take)


def _pad(model: nn.Module, each: Structures, count: int) -> int:
    """Adds heads or units of zeros until there are `count`. Returns how many."""
    missing = count - each.count(model)

    def pad(tensor: Tensor, axis: int) -> Tensor:
        shape = [missing * each.size if place == axis else length for place, length in enumerate(tensor.shape)]
        return torch.cat([tensor.detach(), tensor.new_zeros(shape)], axis)

    if missing > 0:
        _change(model, each, pad)
    return max(missing, 0)


def _change(model: nn.Module, each: Structures, changed: Callable[[Tensor, int], Tensor]) -> None:
    """Replaces the weights and biases by what `changed(tensor, axis)` returns, along the axis of the structures."""
    for name in each.inputs:
        layer = _linear(model, name)
        layer.weight = _parameter(layer.weight, changed(layer.weight, 0))
        if layer.bias is not None:
            layer.bias = _parameter(layer.bias, changed(layer.bias, 0))
        layer.out_features = layer.weight.shape[0]
    layer = _linear(model, each.output)
    layer.weight = _parameter(layer.weight, changed(layer.weight, 1))
    layer.in_features = layer.weight.shape[1]
    if each.attention:
        attention = model.get_submodule(each.attention)
        for name in _HEAD_COUNTS:
            if hasattr(attention, name):
                setattr(attention, name, layer.in_features // each.size)


def _parameter(before: Tensor, value: Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=before.requires_grad)
