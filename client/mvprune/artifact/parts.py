"""Which part of a model a tensor belongs to, and how many bytes of a weights file each part takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mvprune.artifact.header import Entry, Header, PackedTensor
from mvprune.common.blocks import in_block

ENCODER = "encoder"
EMBEDDINGS = "embeddings"
REST = "rest"
PARTS = (ENCODER, EMBEDDINGS, REST)

_SMALL_TABLES = re.compile(r"(position|token_type)_embeddings|(^|\.)wpe\.")
_EMBEDDINGS = re.compile(r"embed|(^|\.)(wte|wpe|shared)\.", re.IGNORECASE)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a weights file, as far as its header tells.

    Attributes:
        part: one of `PARTS`.
        layout: gap, mask, rows or full; "base" for one that is the base model's, "plain" for one that is not packed.
        values: the dtype of its numbers in safetensors' words; BASE if they are the base model's.
        stored: numbers that the file holds of it, or only their positions.
        bytes: of the file.
    """

    name: str
    part: str
    shape: tuple[int, ...]
    layout: str
    values: str
    stored: int
    bytes: int


def part_of(*names: str) -> str:
    """The part of a tensor with these names: numbered blocks (``layer.0.output.…``) are the encoder."""
    if any(map(in_block, names)):
        return ENCODER
    return EMBEDDINGS if any(map(_EMBEDDINGS.search, names)) else REST


def is_small(*names: str) -> bool:
    """Whether a tensor with these names is outside of the encoder and is no table of words: positions, token types, a
    pooler or a head. An error in it is one of every input, or of every token."""
    return part_of(*names) == REST or (part_of(*names) == EMBEDDINGS and any(map(_SMALL_TABLES.search, names)))


def stored_tensors(header: Header) -> Iterator[StoredTensor]:
    """Every tensor of a file, tied names once, in the order of the names."""
    for name, names in sorted(header.names().items()):
        part = part_of(*names)
        if name in header.packed:
            tensor = header.packed[name]
            size = sum(_bytes(entry) for entry in _entries(tensor))
            yield StoredTensor(name, part, tensor.shape, tensor.layout, tensor.dtype, tensor.nonzero, size)
        elif name in header.plain:
            entry = header.plain[name]
            yield StoredTensor(name, part, entry.shape, "plain", entry.dtype, math.prod(entry.shape), _bytes(entry))
        else:
            base = header.base[name]
            yield StoredTensor(name, part, base.shape, "base", base.dtype, 0, 0)


def bytes_by_part(header: Header) -> dict[str, int]:
    """Bytes of data in a file by part; its own header is in none."""
    found = dict.fromkeys(PARTS, 0)
    for tensor in stored_tensors(header):
        found[tensor.part] += tensor.bytes
    return found


def _entries(tensor: PackedTensor) -> Iterator[Entry]:
    return (entry for entry in (tensor.positions, tensor.values, tensor.scales) if entry is not None)


def _bytes(entry: Entry) -> int:
    return entry.end - entry.begin
