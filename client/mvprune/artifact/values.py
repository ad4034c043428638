"""The numbers of a tensor to bytes and back: rounded to what is stored, cut into byte planes, a zstd frame of them.

- ``fp32``, ``fp16``, ``bf16``: IEEE 754 single, half, and the upper half of single; rounded to nearest, ties to even.
- ``int8``, ``int4``: whole numbers q from -127 to 127, or from -7 to 7, and bfloat16 scales s: q·s. s is the largest
  magnitude of its numbers / 127, or / 7, rounded to bfloat16; q is the quotient by s, rounded to nearest, ties to even.
  s = 0 (below 2^-126) makes the numbers zero.

A scale is for the stored numbers of a row; in a full int4 tensor, for at most `GROUP` of them. The few int8 numbers of
a sparse row have the scale of the tensor's largest magnitude, divided by the largest power of 4 that keeps them in
range: one bit less in a number than with scales of their own, and next to none for the scales. A row of a full int8
tensor whose numbers are exact with fewer `STEPS` than 127 has the scale of those: its numbers are smaller, and take
fewer bits in the frame.

Rounding what was rounded changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from mvprune.artifact.coding import Bytes, decompress_parts
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import GROUP, MAX_RATIO

Numbers = npt.NDArray[Any]
Scales = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.int64]

_BLOCK = 1 << 16  # numbers in work at a time
SMALLEST_SCALE = np.float32(2.0**-126)  # below, bfloat16 loses bits


class Values(StrEnum):
    """How the numbers of a tensor are stored."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def dtype(self) -> str:
        """Its name in safetensors."""
        return _DTYPES[self]

    @property
    def is_scaled(self) -> bool:
        """Whether its numbers are whole and have scales."""
        return self in _LARGEST


_DTYPES = MappingProxyType(
    {Values.FP32: "F32", Values.FP16: "F16", Values.BF16: "BF16", Values.INT8: "I8", Values.INT4: "I4"}
)
_LARGEST = MappingProxyType({Values.INT8: 127, Values.INT4: 7})
STEPS = (7, 11, 15, 23, 31, 47, 63, 95, 127)
"""Allowed largest numbers of a row of a full int8 tensor: half a bit of a number lies between two of them."""

_EXPONENTS = MappingProxyType({Values.FP16: 0x7C00, Values.BF16: 0x7F80})  # all of these bits set: not finite
_ITEMS = MappingProxyType(
    {Values.FP32: "<f4", Values.FP16: "<f2", Values.BF16: "<u2", Values.INT8: "|i1", Values.INT4: "|i1"}
)

KINDS = MappingProxyType({kind.dtype: kind for kind in Values})
"""dtype of safetensors → kind."""

FLOATS = MappingProxyType({dtype: kind for dtype, kind in KINDS.items() if not kind.is_scaled})


def encode_values(
    values: Numbers, counts: Counts, kind: Values, *, sparse: bool = False, steps: Counts | None = None
) -> tuple[Numbers, Scales | None]:
    """Floats, shape (n,) → the nearest numbers that can be stored, shape (n,), and the scales of int8 and int4.

    bfloat16 numbers come as their bits, in uint16.

    Args:
        values: the floats.
        counts: how many of them, in their order, each scale is for.
        kind: how they are stored.
        sparse: they are the non-zeros of a pruned tensor.
        steps: of a full int8 tensor: for each scale one of `STEPS`, the largest number that it is for. None: the fewest
            with which nothing is rounded, else 127.

    Raises:
        ArtifactError: a value is not finite, or too large.
    """
    if kind.is_scaled:
        return _quantize(values, counts, kind, sparse=sparse, steps=steps)
    with np.errstate(over="ignore"):
        numbers = bfloat16_bits(values) if kind is Values.BF16 else np.asarray(values, _ITEMS[kind])
    if not np.isfinite(values).all():
        raise ArtifactError("values must be finite, got NaN or infinity")
    if not _finite(numbers, kind):
        raise ArtifactError(f"values must be within the range of {kind.value}, got {values[np.abs(values).argmax()]:g}")
    return numbers, None


def decode_values(numbers: Numbers, scales: Scales | None, counts: Counts | None, kind: Values) -> Numbers:
    """The inverse of `encode_values`: fp16 for fp16, fp32 for all others. Only int8 and int4 have scales and counts.

    Raises:
        ArtifactError: a number or a scale is not one that `encode_values` gives.
    """
    if not kind.is_scaled:
        if not _finite(numbers, kind):
            raise ArtifactError("values must be finite")
        return from_bfloat16(numbers) if kind is Values.BF16 else numbers
    if scales is None or counts is None or len(scales) != len(counts):
        raise ArtifactError(f"the scales must be one for each count, got {0 if scales is None else len(scales)}")
    factors = from_bfloat16(scales)
    if not np.isfinite(factors).all() or np.any(factors < 0):
        raise ArtifactError("scales must be finite numbers of at least 0")
    largest = _LARGEST[kind]
    if len(numbers) and (numbers.min() < -largest or numbers.max() > largest):
        wrong = numbers.min() if numbers.min() < -largest else numbers.max()
        raise ArtifactError(f"{kind.value} values must be from {-largest} to {largest}, got {wrong}")
    values = np.empty(len(numbers), np.float32)
    with np.errstate(over="ignore"):
        for rows, part in _blocks(counts):
            np.multiply(numbers[part], np.repeat(factors[rows], counts[rows]), out=values[part])
    if not np.isfinite(values).all():
        raise ArtifactError("values must be finite")
    return values


def check_exact(numbers: Numbers, scales: Scales | None, counts: Counts, kind: Values, values: Numbers) -> None:
    """Checks that what `encode_values` made of `values` is read as the very same.

    Raises:
        ArtifactError: it is not.
    """
    for rows, part in _blocks(counts):
        read = decode_values(numbers[part], None if scales is None else scales[rows], counts[rows], kind)
        if not np.array_equal(read, values[part]):
            raise ArtifactError(f"values must be representable in {kind.value}; call round_values first")


def rounded(array: Numbers, kind: Values, *, sparse: bool = False, steps: Counts | None = None) -> Numbers:
    """An array of floats as it will be stored and read, in its own dtype; rows run along all but its first axis.

    Args:
        array: the floats.
        kind: how they are stored.
        sparse: only its non-zeros are stored.
        steps: see `encode_values`, (rows,).

    Raises:
        ArtifactError: a value is not finite, or too large.
    """
    counts = row_counts(array.shape) if sparse else scaled_counts(array.shape, kind)
    numbers, scales = encode_values(array.reshape(-1), counts, kind, sparse=sparse, steps=steps)
    values: Numbers = decode_values(numbers, scales, counts, kind).reshape(array.shape).astype(array.dtype)
    values += 0  # -0 becomes 0
    return values


def row_counts(shape: tuple[int, ...]) -> Counts:
    """How many numbers the rows of a full tensor have; one without axes is one row."""
    rows = shape[0] if shape else 1
    return np.full(rows, int(np.prod(shape[1:], dtype=np.int64)), np.int64)


def scaled_counts(shape: tuple[int, ...], kind: Values) -> Counts:
    """How many numbers each scale of a full tensor is for, in their order."""
    counts = row_counts(shape)
    if kind is not Values.INT4:
        return counts
    row = int(np.prod(shape[1:], dtype=np.int64))
    whole, rest = divmod(row, GROUP)
    return np.tile(np.array([GROUP] * whole + [rest] * (rest > 0), np.int64), len(counts))


def pack(numbers: Numbers) -> Numbers:
    """Numbers, shape (n,) → the zstd frame (uint8) of their byte planes, or themselves where that is not smaller."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=numbers.nbytes)
    frame = bytearray()
    for plane in range(numbers.itemsize):
        frame += compressor.compress(numbers.view(np.uint8)[plane :: numbers.itemsize].tobytes())
        frame += compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)  # each plane has symbols of its own
    frame += compressor.flush()
    if len(frame) < numbers.nbytes <= MAX_RATIO * len(frame):
        return np.frombuffer(frame, np.uint8)
    return numbers


def unpack(frame: Bytes, count: int, kind: Values, what: str = "values") -> Numbers:
    """The inverse of `pack`, of a frame of `what`; scales are bfloat16 numbers.

    Raises:
        ArtifactError: the frame does not hold exactly `count` numbers, or unpacks to more than `MAX_RATIO` its size.
    """
    item = np.dtype(_ITEMS[kind])
    size = count * item.itemsize
    if size > MAX_RATIO * len(frame):
        raise ArtifactError(f"the frame must be large enough for {count} {what}, got {len(frame)} bytes")
    numbers = np.zeros(count, f"<u{item.itemsize}")
    place = 0
    for part in decompress_parts(frame, size, what):
        while len(part):  # shifting whole numbers takes a tenth of the time that transposing bytes would
            plane, start = divmod(place, count)
            some = part[: count - start]
            numbers[start : start + len(some)] |= some.astype(numbers.dtype) << 8 * plane
            place, part = place + len(some), part[len(some) :]
    return numbers.view(item)


def bfloat16_bits(values: Numbers) -> Scales:
    """Finite floats → the bits of the nearest bfloat16 numbers, ties to even."""
    bits = np.asarray(values, "<f4").view("<u4")
    nearest: Scales = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    return nearest


def from_bfloat16(bits: Scales) -> npt.NDArray[np.float32]:
    """The bits of bfloat16 numbers → fp32."""
    return (bits.astype("<u4") << 16).view("<f4")


def _quantize(
    values: Numbers, counts: Counts, kind: Values, *, sparse: bool, steps: Counts | None
) -> tuple[Numbers, Scales]:
    most = _LARGEST[kind]
    unit = _unit(values, most) if sparse and kind is Values.INT8 else None
    numbers = np.empty(len(values), np.int8)
    scales = np.zeros(len(counts), "<u2")
    for rows, part in _blocks(counts):
        block = np.asarray(values[part], np.float32)
        if not np.isfinite(block).all():
            raise ArtifactError("values must be finite, got NaN or infinity")
        lengths = counts[rows]
        largest = _largest(block, lengths)
        ends = np.full(len(lengths), most) if steps is None else steps[rows]
        if steps is None and kind is Values.INT8 and not sparse:
            ends = _fewest_steps(block, lengths, largest)
        factors = largest / ends.astype(np.float32)
        if unit is not None:
            factors = _shared(factors, unit)
        factors[factors < SMALLEST_SCALE] = 0
        scales[rows] = bfloat16_bits(factors)
        block = np.divide(block, np.repeat(_divisors(scales[rows]), lengths), dtype=np.float32)
        limits = most if steps is None else np.repeat(ends, lengths)
        numbers[part] = np.clip(np.rint(block, out=block), -limits, limits, out=block)
    return numbers, scales


def _largest(block: Numbers, lengths: Counts) -> npt.NDArray[np.float32]:
    """The largest magnitude of each row; 0 of one without numbers."""
    found = np.zeros(len(lengths), np.float32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = (np.cumsum(lengths) - lengths)[filled]
        found[filled] = np.maximum(np.maximum.reduceat(block, starts), -np.minimum.reduceat(block, starts))
    return found


def _fewest_steps(block: Numbers, lengths: Counts, largest: Numbers) -> Counts:
    """For each row the fewest of `STEPS` with which none of its numbers is rounded; 127 if it is with all."""
    found = np.full(len(lengths), STEPS[-1])
    for steps in STEPS[-2::-1]:
        scales = bfloat16_bits(largest / np.float32(steps))
        # That the largest is exact is quickly known, and rare.
        hopeful = (largest / np.float32(steps) >= SMALLEST_SCALE) & (from_bfloat16(scales) * steps == largest)
        some = block[np.repeat(hopeful, lengths)]
        divisors = np.repeat(_divisors(scales[hopeful]), lengths[hopeful])
        exact = np.rint(some / divisors) * divisors == some
        rows = np.flatnonzero(hopeful)
        wrong = np.repeat(rows, lengths[hopeful])[~exact]
        hopeful[wrong] = False
        found[hopeful] = steps
    return found


def _divisors(scales: Scales) -> npt.NDArray[np.float32]:
    """Scales to divide by: all quotients by 0 become 0."""
    divisors = from_bfloat16(scales)
    divisors[divisors == 0] = np.inf
    return divisors


def _unit(values: Numbers, most: int) -> np.float32:
    """The scale of the largest magnitude; 0 where it is too small, or not finite, which is refused later."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.float32(max(values.max(initial=0), -values.min(initial=0))) / np.float32(most)
    if not SMALLEST_SCALE <= largest < np.inf:
        return np.float32(0)
    unit: np.float32 = from_bfloat16(bfloat16_bits(np.array([largest])))[0]
    return unit


def _shared(factors: Numbers, unit: np.float32) -> Numbers:
    """For each factor the smallest of unit, unit / 4, unit / 16, … that is not below it; for 0, 0."""
    if not unit:
        return np.zeros_like(factors)
    filled = factors > 0
    ratios = np.divide(unit, factors, where=filled, out=np.ones(len(factors)), dtype=np.float64)
    steps = np.clip(_powers_of_4(ratios), 0, _powers_of_4(np.float64(unit) / SMALLEST_SCALE))
    return np.where(filled, np.ldexp(unit, -2 * steps), 0)


def _powers_of_4(ratios: Any) -> Any:
    """The exponent of the largest power of 4 up to each ratio. A logarithm would be a little less for some powers."""
    return (np.frexp(ratios)[1] - 1) // 2


def _blocks(counts: Counts) -> Iterator[tuple[slice, slice]]:
    """Runs of whole rows with about `_BLOCK` numbers each: the rows, and their numbers."""
    ends = np.cumsum(counts)
    row = begin = 0
    while row < len(counts):
        last = max(row + 1, int(np.searchsorted(ends, begin + _BLOCK, side="right")))
        end = int(ends[last - 1])
        yield slice(row, last), slice(begin, end)
        row, begin = last, end


def _finite(numbers: Numbers, kind: Values) -> bool:
    if kind not in _EXPONENTS:
        return bool(np.isfinite(numbers).all())
    bits, exponent = numbers.view(np.uint16), _EXPONENTS[kind]  # isfinite would convert fp16, which takes longer
    starts = range(0, len(bits), _BLOCK)
    return not any(np.any((bits[start : start + _BLOCK] & exponent) == exponent) for start in starts)
