"""Keys and values of transformers' caches in buffers with room for more tokens, which the caches show parts of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

_ATTRIBUTE = "_mvprune_room"  # of a cache's layer
_SPARE = 64  # tokens that a new buffer has room for, at least


class Room:
    """The buffers of one layer of a cache, (texts, groups, capacity, size)."""

    def __init__(self, layer: Any, length: int, capacity: int) -> None:
        texts, groups, _, size = layer.keys.shape
        self.capacity, self._owner = capacity, id(layer)  # a copy of the layer must not write into the same room
        self.keys, self.values = (torch.empty(texts, groups, capacity, size) for _ in range(2))
        self.keys[:, :, :length], self.values[:, :, :length] = layer.keys, layer.values
        self._shown: tuple[Tensor, Tensor] = (layer.keys, layer.values)
        self._filled = length

    def fits(self, layer: Any, length: int) -> bool:
        """Whether the layer shows all that was written, and there is room for one more token.

        After a crop it does not: what is behind may still be seen elsewhere.
        """
        shown = layer.keys is self._shown[0] and layer.values is self._shown[1]
        return shown and self._owner == id(layer) and self._filled == length < self.capacity

    def show(self, layer: Any, length: int) -> None:
        """Makes the layer show so many tokens."""
        layer.keys, layer.values = self._shown = self.keys.narrow(2, 0, length), self.values.narrow(2, 0, length)
        self._filled = length


def rooms_of(cache: Any, length: int) -> list[Room]:
    """Those of a cache's layers, all with the same room for more than `length` tokens."""
    rooms = [vars(layer).get(_ATTRIBUTE) for layer in cache.layers]
    if all(room is not None and room.fits(layer, length) for room, layer in zip(rooms, cache.layers, strict=True)):
        known: list[Room] = [room for room in rooms if room is not None]
        if all(room.capacity == known[0].capacity for room in known):
            return known
    made = [Room(layer, length, length + max(_SPARE, length // 2)) for layer in cache.layers]
    for layer, room in zip(cache.layers, made, strict=True):
        setattr(layer, _ATTRIBUTE, room)
    return made


def holds(cache: Any, shape: tuple[int, ...], count: int) -> bool:
    """Whether a cache has that many layers that grow, with keys and values of that shape in float32 on the CPU."""
    return len(cache.layers) == count and all(
        type(layer) is DynamicLayer and _is(layer.keys, shape) and _is(layer.values, shape) for layer in cache.layers
    )


def _is(part: Any, shape: tuple[int, ...]) -> bool:
    return part is not None and part.shape == shape and part.dtype is torch.float32 and part.is_cpu
