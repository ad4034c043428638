"""Weights files whose header is made to do harm: refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.artifact.hostile_files import BASE, HALF, SHAPE_2, metadata, refused


@pytest.mark.parametrize(
    ("header", "data", "reason"),
    [
        (b"", b"", "invalid JSON"),
        (b"[1]", b"", "must be a JSON object"),
        (b"\xff\xfe", b"", "invalid JSON"),
        (b"[" * 100_000, b"", "invalid JSON"),
        (b'{"a":' * 100_000, b"", "invalid JSON"),
        (b'{"a": NaN}', b"", "NaN is not a number"),
        (b'{"a": ' + b"9" * 10_000 + b"}", b"", "invalid JSON"),
        (b'{"a": 1, "a": 2}', b"", "same key twice"),
        ({}, b"", "__metadata__: must have exactly the fields mvprune"),
        ({"__metadata__": {"mvprune": 1}}, b"", "__metadata__"),
        ({"__metadata__": {"mvprune": "{}", "format": "pt"}}, b"", "__metadata__"),
        ({"__metadata__": {"mvprune": "{}"}}, b"", "version must be 3, got None"),
        ({"__metadata__": {"mvprune": '{"version":3,"version":3}'}}, b"", "same key twice"),
        ({"__metadata__": {"mvprune": "\ud800"}}, b"", "invalid JSON"),
        ({"__metadata__": metadata(version=2)}, b"", "version must be 3, got 2"),
        ({"__metadata__": metadata(version=True)}, b"", "version must be 3, got True"),
        ({"__metadata__": metadata(more=1)}, b"", "must have exactly the fields"),
        ({"__metadata__": metadata([1])}, b"", "must have exactly the fields"),
        ({"__metadata__": metadata()}, b"123", "the tensors must take all 3 bytes of the file, got 0"),
        ({"__metadata__": metadata(), "a": 1}, b"", "tensor 'a': must be a JSON object"),
        ({"__metadata__": metadata(), "a": HALF | {"dtype": "F64"}}, b"1234", "dtype must be one of"),
        ({"__metadata__": metadata(), "a": HALF | {"dtype": ["F16"]}}, b"1234", "must have exactly the fields dtype"),
        ({"__metadata__": metadata(), "a": HALF | {"more": 1}}, b"1234", "must have exactly the fields dtype"),
        (
            {"__metadata__": metadata(), "a": HALF | {"shape": [3]}},
            b"1234",
            "must span the bytes of shape and dtype, got 4 bytes",
        ),
        (
            {"__metadata__": metadata(), "a": HALF | {"shape": [-2]}},
            b"1234",
            "tensor 'a': shape must be at most 8 whole numbers",
        ),
        (
            {"__metadata__": metadata(), "a": HALF | {"shape": [2.0]}},
            b"1234",
            "tensor 'a': shape must be at most 8 whole numbers",
        ),
        (
            {"__metadata__": metadata(), "a": HALF | {"shape": [True, 2]}},
            b"1234",
            "tensor 'a': shape must be at most 8 whole numbers",
        ),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [1] * 9 + [2]}}, b"1234", "at most 8"),
        (
            {"__metadata__": metadata(), "a": HALF | {"shape": [2**32, 2**32]}},
            b"1234",
            "shape must have less than 2^60 elements",
        ),
        (
            {"__metadata__": metadata(), "a": HALF | {"shape": [0, 2**62], "data_offsets": [0, 0]}},
            b"",
            "shape must have less than 2^60 elements",
        ),
        ({"__metadata__": metadata(), "a": HALF | {"data_offsets": [0]}}, b"1234", "two whole numbers"),
        ({"__metadata__": metadata(), "a": HALF | {"data_offsets": [-4, 0]}}, b"1234", "two whole numbers"),
        (
            {"__metadata__": metadata(), "a": HALF | {"data_offsets": [4, 0]}},
            b"1234",
            "must span the bytes of shape and dtype, got -4 bytes",
        ),
        (
            {"__metadata__": metadata(), "a": HALF | {"data_offsets": [4, 8]}},
            b"12345678",
            "must start at 0, where the one before ends, got 4",
        ),
        ({"__metadata__": metadata(), "a": HALF, "b": HALF}, b"1234", "tensor 'b': its data must start at 4"),
        ({"__metadata__": metadata(), "a": HALF}, b"12345", "take all 5 bytes of the file, got 4"),
        ({"__metadata__": metadata(), "a": HALF}, b"\0\x7c\0\0", "tensor 'a': values must be finite"),
        ({"__metadata__": metadata(), "": HALF}, b"1234", "names of tensors must be 1 to"),
        ({"__metadata__": metadata(), "\x1b[31m": HALF}, b"1234", "names of tensors must be 1 to"),
        ({"__metadata__": metadata(), "a::values": HALF}, b"1234", "names of tensors must be 1 to"),
        ({"__metadata__": metadata(), "a" * 5000 + "\n": HALF}, b"1234", "names of tensors must be 1 to"),
        (
            {"__metadata__": metadata(), "a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}},
            b"\2",
            "booleans must be 0 or 1",
        ),
        (
            {"__metadata__": metadata(aliases={"b": "c"}), "a": HALF},
            b"1234",
            "aliases must be new names of stored tensors, got 'b' of 'c'",
        ),
        (
            {"__metadata__": metadata(aliases={"a": "a"}), "a": HALF},
            b"1234",
            "aliases must be new names of stored tensors, got 'a' of 'a'",
        ),
        (
            {"__metadata__": metadata(aliases={"b": "a", "c": "b"}), "a": HALF},
            b"1234",
            "aliases must be new names of stored tensors, got 'c' of 'b'",
        ),
        (
            {"__metadata__": metadata(aliases={"b": 1}), "a": HALF},
            b"1234",
            "aliases must be new names of stored tensors, got 'b' of 1",
        ),
        (
            {"__metadata__": metadata(aliases={"b": ["a"]}), "a": HALF},
            b"1234",
            "aliases must be new names of stored tensors, got 'b' of ['a']",
        ),
        ({"__metadata__": metadata(aliases={"\n": "a"}), "a": HALF}, b"1234", "names of tensors must be 1 to"),
        (
            {"__metadata__": metadata({"a": SHAPE_2}), "a": HALF},
            b"1234",
            "tensor 'a': a packed tensor must have ::values",
        ),
        ({"__metadata__": metadata({"a": {"layout": "gap"}}), "a": HALF}, b"1234", "tensor 'a': must have exactly"),
        ({"__metadata__": metadata(base=[1])}, b"", "must have exactly the fields"),
        ({"__metadata__": metadata(base={"a": BASE}), "a": HALF}, b"1234", "tensor 'a': must be stored once"),
        ({"__metadata__": metadata(base={"": BASE})}, b"", "names of tensors must be 1 to"),
        ({"__metadata__": metadata(base={"a": BASE | {"sha256": "0"}})}, b"", "64 hex digits"),
        ({"__metadata__": metadata(base={"a": BASE | {"dtype": "I64"}})}, b"", "a base tensor must have a dtype"),
        (
            {"__metadata__": metadata(base={"a": BASE | {"shape": [2**40] * 2}})},
            b"",
            "shape must have less than 2^60 elements",
        ),
        ({"__metadata__": metadata(base={"a": BASE | {"path": "../x"}})}, b"", "tensor 'a': must have exactly"),
    ],
)
def test_hostile_headers(craft: Callable[..., Path], header: Any, data: bytes, reason: str) -> None:
    refused(craft(header, data), reason)


@pytest.mark.parametrize("length", [17 << 20, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_or_the_bound(craft: Callable[..., Path], length: int) -> None:
    refused(craft({}, length=length), "must contain the header")
    path = craft({}, length=17 << 20)
    with path.open("r+b") as file:
        file.truncate(20 << 20)  # sparse on disk
    refused(path, "the header must have at most 16777216 bytes")
