"""Weights files with packed tensors that are made to do harm: refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.artifact.hostile_files import BASE, ONES, crafted, full, one_sparse, packed_bytes, refused

from mvprune.artifact import read_weights

MASKED = {"count": 2, "layout": "gap", "shape": [2], "values": "BASE"}


@pytest.mark.parametrize(
    ("shape", "gaps", "values", "layout", "reason"),
    [
        ([8], b"\0\0", [1, 2, 3], "gap", "tensor 'w': the positions must be 3, one for each value, got 2"),
        ([8], b"\0\0\0", [1, 2], "gap", "tensor 'w': the positions must have at most 2 bytes unpacked"),
        ([8], b"\0\x07", [1, 2], "gap", "tensor 'w': positions must be less than 8, the number of elements, got 8"),
        ([8], b"\0", [0], "gap", "tensor 'w': stored values must not be zero"),
        ([8], b"\0", [-0.0], "gap", "tensor 'w': stored values must not be zero"),
        ([8], b"\0", [np.nan], "gap", "tensor 'w': values must be finite"),
        ([8], b"\0", [1], "csr", "tensor 'w': layout must be one of gap, mask, gap4, mask4, rows, full"),
        ([8], b"\0", [1], "full", "tensor 'w': a packed tensor must have ::values unless they are BASE"),
        (
            [8],
            b"\0",
            [1],
            "mask",
            "tensor 'w': a mask must not be larger than gaps would be, got 8 elements for 1 values",
        ),
        ([8], b"\x08", [1], "rows", "positions must be less than 8, the number of elements, got 8"),
        ([4, 2], b"\x04", [1, 2], "rows", "positions must be less than 4, the number of elements, got 4"),
        ([4, 2], b"\0", [1, 2, 3], "rows", "count must fit the shape [4, 2], got 3"),
        ([], b"\0", [1], "rows", "the shape must have an axis"),
        ([2], b"\0\0\0", [1, 2, 3], "gap", "count must fit the shape [2], got 3"),
        ([2**35], b"\0", [1], "gap", "the tensors must have at most 268435456 elements"),
        ([2**59, 1], b"\0", [1], "gap", "the tensors must have at most 268435456 elements"),
        ([2**60, 0], b"", [], "gap", "tensor 'w': shape must have less than 2^60 elements"),
        (
            [2**40, 2**40],
            b"\0",
            [1],
            "gap",
            "tensor 'w': shape must have less than 2^60 elements, got [1099511627776, 1099511627776]",
        ),
        ([8, None], b"\0", [1], "gap", "tensor 'w': shape must be at most 8 whole numbers"),
    ],
)
def test_hostile_positions(
    craft: Callable[..., Path], shape: list[Any], gaps: bytes, values: list[float], layout: str, reason: str
) -> None:
    refused(craft(*one_sparse(shape, gaps, values, layout)), reason)


def test_a_large_file_may_have_1024_elements_a_byte(craft: Callable[..., Path]) -> None:
    parts = {"positions": packed_bytes(b"\0"), "values": ("F16", [1] * 2**18)}
    path = craft(*crafted({"count": 2**18, "layout": "gap", "shape": [2**35], "values": "F16"}, **parts))
    size = path.stat().st_size
    refused(path, f"the tensors must have at most {1024 * size} elements in a file of {size} bytes, got {2**35}")


@pytest.mark.parametrize(
    ("description", "base", "parts", "reason"),
    [
        (MASKED, {}, {"positions": packed_bytes(b"\0\0")}, "tensor 'w': must be in base with its shape"),
        (MASKED, {"w": BASE | {"shape": [3]}}, {"positions": packed_bytes(b"\0\0")}, "must be in base with its shape"),
        (MASKED, {"w": BASE}, {"positions": packed_bytes(b"\0\0"), "values": ("F16", [1, 1])}, "must have ::values"),
        (MASKED, {"w": BASE}, {}, "must have ::values unless they are BASE, ::positions unless full"),
        (
            MASKED | {"layout": "full"},
            {"w": BASE},
            {},
            "layout must be one of gap, mask, gap4, mask4 for BASE, got full",
        ),
        (
            MASKED | {"shape": [2**35]},
            {"w": BASE | {"shape": [2**35]}},
            {"positions": packed_bytes(b"\0\0")},
            "the tensors must have at most 268435456 elements",
        ),
        (MASKED, {"w": BASE}, {"positions": packed_bytes(b"\0\0")}, "base must be given for a delta artifact"),
    ],
)
def test_hostile_masks_of_a_base(
    craft: Callable[..., Path],
    description: dict[str, Any],
    base: dict[str, Any],
    parts: dict[str, Any],
    reason: str,
) -> None:
    refused(craft(*crafted(description, base, **parts)), reason)


@pytest.mark.parametrize(
    ("description", "parts", "reason"),
    [
        (full("F64"), {"values": ("F32", [1] * 4)}, "got 'full' and 'F64'"),
        (full("F16", 3), {"values": ("F16", [1] * 3)}, "count must fit the shape [2, 2], got 3"),
        (full("F16", -1), {"values": ("F16", [])}, "count must fit the shape [2, 2], got -1"),
        (full("F16"), {"values": ("F16", [1] * 3)}, "::values must have 4 values, got 3"),
        (full("F16"), {"values": ("I8", [1] * 4)}, "parts must be F16 or U8 with one axis, got I8"),
        (full("F16"), {"values": ("F16", [[1, 1], [1, 1]])}, "with one axis"),
        (full("F16"), {"values": packed_bytes(b"1234567")}, "the values must have 8 bytes unpacked, got 7"),
        (full("F16"), {"values": packed_bytes(b"123456789")}, "the values must have at most 8 bytes unpacked"),
        (full("F16"), {"values": ("U8", [1, 2, 3, 4])}, "the values must be one zstd frame"),
        (full("F16"), {"values": packed_bytes(b"\0\0\0\0\0\x7c\0\0")}, "values must be finite"),
        (full("BF16"), {"values": ("BF16", [0x7F80, 0, 0, 0])}, "values must be finite"),
        (full("F32"), {"values": ("F32", [np.nan, 0, 0, 0])}, "values must be finite"),
        (full("F16", 4, (4,)), {"values": ("F16", [1] * 4), "scales": ONES}, "::scales where they are I8"),
        (full("I8"), {"values": ("I8", [1] * 4)}, "::scales where they are I8"),
        (full("I8", 1, ()), {"values": ("I8", [1]), "scales": ONES}, "the shape must have an axis"),
        (
            full("I8"),
            {"values": ("I8", [1] * 4), "scales": ("F32", [1, 1])},
            "parts must be BF16 or U8 with one axis, got F32",
        ),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("BF16", [1])}, "::scales must have 2 scales"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("BF16", [0x7FC0, 0])}, "scales must be finite numbers"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("BF16", [0xBF80, 0])}, "scales must be finite numbers"),
        (
            full("I8"),
            {"values": ("I8", [-128, 1, 1, 1]), "scales": ONES},
            "int8 values must be from -127 to 127, got -128",
        ),
        (full("I8"), {"values": ("I8", [127] * 4), "scales": ("BF16", [0x7F7F, 0])}, "values must be finite"),
        (
            full("I8"),
            {"values": ("I8", [1] * 4), "scales": packed_bytes(bytes(3))},
            "scales must have 4 bytes unpacked",
        ),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": packed_bytes(bytes(5))}, "scales must have at most 4 bytes"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("U8", [1, 2])}, "the scales must be one zstd frame"),
        (full("I4"), {"values": ("I8", [7, -7, 8, 1]), "scales": ONES}, "int4 values must be from -7 to 7, got 8"),
        (full("I4"), {"values": ("I8", [7, -8, 0, 1]), "scales": ONES}, "int4 values must be from -7 to 7, got -8"),
        (full("I4"), {"values": ("I8", [1] * 3), "scales": ONES}, "::values must have 4 values, got 3"),
        (full("I4"), {"values": ("I8", [1] * 4), "scales": ("BF16", [1])}, "::scales must have 2 scales"),
        (full("I4", 130, (2, 65)), {"values": ("I8", [1] * 130), "scales": ONES}, "::scales must have 4 scales"),
        (full("I4", 4, (4,)), {"values": ("I8", [1] * 4)}, "::scales where they are I8 or I4"),
        (
            {"count": 1, "layout": "gap", "shape": [2, 2], "values": "I8"},
            {"values": ("I8", [1]), "positions": packed_bytes(b"\0"), "scales": ("BF16", [0, 0])},
            "stored values must not be zero",
        ),
        (full("F16", 2**28, (2**28,)), {"values": packed_bytes(bytes(8))}, "must be large enough for 268435456 values"),
    ],
)
def test_hostile_values(
    craft: Callable[..., Path], description: dict[str, Any], parts: dict[str, Any], reason: str
) -> None:
    refused(craft(*crafted(description, **parts)), reason)


def test_positions_are_bytes(craft: Callable[..., Path]) -> None:
    header, data = one_sparse([8], b"\0\1", [1, 2])
    refused(
        craft(header | {"w::positions": header["w::positions"] | {"dtype": "I8"}}, data),
        "parts must be U8 with one axis, got I8",
    )
    assert read_weights(craft(header, data))["w"].tolist() == [1, 0, 2, 0, 0, 0, 0, 0]
