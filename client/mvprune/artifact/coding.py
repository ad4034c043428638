"""Where the non-zeros of a matrix are: two codings of ascending positions, each a zstd frame of bytes.

Positions count elements in row-major order from 0.

- ``gap``: before every non-zero lie g zeros; g is written as ⌊g/255⌋ bytes of 255 and one byte g mod 255.
  Near the entropy of the positions at low density.
- ``mask``: bit ``p mod 8`` (least significant first) of byte ``⌊p/8⌋`` is set for every position p. Taken, and only
  valid, from `MASK_DENSITY` on, which bounds what a small file can make a reader allocate.

Non-zeros in blocks of four elements, as the pattern 1x4 leaves them, have the positions of the blocks, in the same
codings: a quarter of the positions, and of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import zstandard

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import BLOCK, BLOCK_LAYOUTS

Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.int64]

GAP = "gap"
MASK = "mask"
MASK_DENSITY = 1 / 4
MOST_ZEROS = 0.5
"""Zeros that blocks may have for each non-zero. Rounding to int4 makes a quarter of the kept weights zero."""
_MOST_BLOCKS = 0.95  # of all blocks: at a high density, single weights fill about all

_ESCAPE = 255
_LEVEL = 1  # the gaps have entropy but no repetitions: higher levels find false matches and come out larger
_BLOCK = 1 << 18  # positions in work at a time
_PART = 1 << 18  # bytes unpacked at a time
_END = 16  # bytes


def find_blocks(positions: Positions, row: int, elements: int) -> Positions | None:
    """The blocks that have a non-zero, ascending; None: the non-zeros are not in blocks, or rows not of whole blocks.

    Args:
        positions: of the non-zeros, ascending.
        row: elements of a row.
        elements: of the tensor.
    """
    if row % BLOCK or not len(positions):
        return None
    blocks = positions // BLOCK
    blocks = blocks[np.diff(blocks, prepend=-1) > 0]
    zeros = BLOCK * len(blocks) - len(positions)
    if zeros > MOST_ZEROS * len(positions) or len(blocks) > _MOST_BLOCKS * (elements // BLOCK):
        return None
    return blocks


def elements_of(blocks: Positions) -> Positions:
    """The positions of all elements of blocks."""
    return (blocks[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)


def encode_gaps(positions: Positions) -> Bytes:
    """Ascending positions, shape (n,) → gap bytes, shape (n + escapes,)."""
    parts = []
    for start in range(0, len(positions), _BLOCK):
        before = int(positions[start - 1]) if start else -1
        escapes, rest = np.divmod(np.diff(positions[start : start + _BLOCK], prepend=before) - 1, _ESCAPE)
        part = np.full(len(rest) + int(escapes.sum()), _ESCAPE, np.uint8)
        part[np.cumsum(escapes + 1) - 1] = rest
        parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def decode_gaps(stream: Bytes, count: int, elements: int) -> Positions:
    """The inverse of `encode_gaps`.

    Raises:
        ArtifactError: the bytes do not hold exactly `count` positions below `elements`.
    """
    ends = stream != _ESCAPE
    if len(stream) and not ends[-1]:
        raise ArtifactError("the gaps must end with a position, got an escape at their end")
    narrow = np.int32 if _ESCAPE * len(stream) < 2**31 else np.int64  # no step is longer than an escape
    steps = np.add(stream, ends, dtype=narrow)
    steps[:1] -= 1
    np.cumsum(steps, out=steps)
    positions: Positions = steps if ends.all() else steps[ends]
    if len(positions) != count:
        raise ArtifactError(f"the positions must be {count}, one for each value, got {len(positions)}")
    if count and positions[-1] >= elements:
        raise ArtifactError(f"positions must be less than {elements}, the number of elements, got {positions[-1]}")
    return positions


def encode_mask(positions: Positions, elements: int) -> Bytes:
    """Ascending positions, shape (n,) → bit mask, shape (⌈elements/8⌉,)."""
    mask = np.zeros(elements, np.bool_)
    mask[positions] = True
    return np.packbits(mask, bitorder="little")


def decode_mask(stream: Bytes, count: int, elements: int) -> Positions:
    """The inverse of `encode_mask`.

    Raises:
        ArtifactError: the mask has another length, another number of set bits, or set bits beyond its end.
    """
    if len(stream) != (elements + 7) // 8:
        raise ArtifactError(f"the mask must have one bit for each of {elements} elements, got {len(stream)} bytes")
    positions = np.flatnonzero(np.unpackbits(stream, bitorder="little").view(np.bool_))
    if len(positions) != count:
        raise ArtifactError(f"the positions must be {count}, one for each value, got {len(positions)}")
    if count and positions[-1] >= elements:
        raise ArtifactError("bits beyond the end of the mask must be 0, got 1")
    return positions


def encode_positions(positions: Positions, elements: int, coding: str | None = None) -> tuple[str, Bytes]:
    """Ascending positions, shape (n,) → the coding (by default the one that suits their density) and its zstd frame."""
    if coding is None:
        coding = MASK if 0 < MASK_DENSITY * elements <= len(positions) else GAP
    content = encode_mask(positions, elements) if coding == MASK else encode_gaps(positions)
    frame = zstandard.ZstdCompressor(level=_LEVEL).compress(content.data)
    return coding, np.frombuffer(frame, np.uint8)


def decode_stored(layout: str, frame: Bytes, count: int, elements: int) -> Positions:
    """The positions of the `count` stored elements of a sparse tensor, ascending.

    Raises:
        ArtifactError: as `decode_positions`.
    """
    if layout in BLOCK_LAYOUTS:
        return elements_of(decode_positions(layout.removesuffix(str(BLOCK)), frame, count // BLOCK, elements // BLOCK))
    return decode_positions(layout, frame, count, elements)


def decode_positions(coding: str, frame: Bytes, count: int, elements: int) -> Positions:
    """The inverse of `encode_positions`, for any bytes; memory is bounded by `count` and `elements`.

    Raises:
        ArtifactError: unknown coding, broken or oversized frame, or bytes that `count` and `elements` contradict.
    """
    if coding == GAP:
        return decode_gaps(decompress(frame, count + elements // _ESCAPE, "positions"), count, elements)
    if coding == MASK:
        if count < MASK_DENSITY * elements:
            raise ArtifactError(
                f"a mask must not be larger than gaps would be, got {elements} elements for {count} values"
            )
        return decode_mask(decompress(frame, (elements + 7) // 8, "positions"), count, elements)
    raise ArtifactError(f"the coding must be {GAP!r} or {MASK!r}, got {coding!r}")


def decompress(frame: Bytes, limit: int, what: str) -> Bytes:
    """One complete zstd frame whose header states its unpacked size: at most `limit` bytes.

    A frame that does not state it is refused: unpacking it would take as much memory as its window, up to 128 MiB.

    Raises:
        ArtifactError: it is not, said of `what`.
    """
    with _one_frame(frame, limit, what):
        content = zstandard.ZstdDecompressor().decompress(
            frame.data, max_output_size=max(limit, 1), allow_extra_data=False
        )
        return np.frombuffer(content, np.uint8)


def decompress_parts(frame: Bytes, size: int, what: str) -> Iterator[Bytes]:
    """The same part by part, of `_PART` bytes but the last: the memory that whole content would take is not needed.

    Raises:
        ArtifactError: as `decompress`, or the content has another size than `size`.
    """
    source: Any = _Source(frame)
    with _one_frame(frame, size, what) as stated:
        if stated != size:
            raise ArtifactError(f"the {what} must have {size} bytes unpacked, got {stated}")
        reader = zstandard.ZstdDecompressor().stream_reader(source)
        for start in range(0, size, _PART):
            part = reader.read(min(_PART, size - start))
            if len(part) < min(_PART, size - start):
                break
            yield np.frombuffer(part, np.uint8)
        else:
            if not reader.read(1) and source.ended:
                return
    raise ArtifactError(f"the {what} must be one zstd frame of {size} bytes unpacked, got another")


class _Source:
    """Reads from a frame. The end comes byte by byte: when the decoder is done, what follows is left."""

    def __init__(self, frame: Bytes) -> None:
        self._frame, self._place = frame.data, 0

    @property
    def ended(self) -> bool:
        return self._place == len(self._frame)

    def read(self, size: int) -> memoryview:
        end = max(len(self._frame) - _END, self._place + 1)
        start, self._place = self._place, min(self._place + size, end, len(self._frame))
        return self._frame[start : self._place]


@contextmanager
def _one_frame(frame: Bytes, limit: int, what: str) -> Iterator[int]:
    try:
        stated = zstandard.frame_content_size(frame.data)
        if stated < 0:
            raise ArtifactError(f"the {what} must be one zstd frame that states its unpacked size")
        if stated > limit:
            raise ArtifactError(f"the {what} must have at most {limit} bytes unpacked, got {stated}")
        yield stated
    except zstandard.ZstdError as error:
        raise ArtifactError(
            f"the {what} must be one zstd frame of at most {limit} bytes, got another ({error})"
        ) from error
