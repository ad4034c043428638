"""Weights files that were cut, changed or made to do harm: refused in one sentence, nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mvprune.artifact import ArtifactError, Base, packing, read_weights, write_weights

GOLDENS = tuple(
    (Path(__file__).parent / "golden" / f"{name}.safetensors").read_bytes() for name in ("fp16", "int8", "int4")
)
HALF = {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}
BASE = {"dtype": "F32", "name": "a", "sha256": "0" * 64, "shape": [2]}
MASKED = {"count": 2, "layout": "gap", "shape": [2], "values": "BASE"}
SHAPE_2 = {"count": 2, "layout": "gap", "shape": [2], "values": "F16"}
ITEMS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "|i1", "U8": "|u1"}


def metadata(
    packed: Any = None, aliases: Any = None, version: Any = 3, base: Any = None, **more: Any
) -> dict[str, str]:
    fields = {"aliases": aliases or {}, "base": base or {}, "packed": packed or {}, "version": version, **more}
    return {"mvprune": json.dumps(fields)}


def crafted(
    description: dict[str, Any], base: dict[str, Any] | None = None, **parts: tuple[str, Any]
) -> tuple[dict[str, Any], bytes]:
    """A file with one packed tensor w, of parts given as dtype and content."""
    header: dict[str, Any] = {"__metadata__": metadata({"w": description}, base=base)}
    data = b""
    for part, (dtype, content) in parts.items():
        array = np.asarray(content, ITEMS[dtype])
        offsets = [len(data), len(data) + array.nbytes]
        header[f"w::{part}"] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    return header, data


def packed_bytes(content: bytes) -> tuple[str, np.ndarray]:
    return "U8", np.frombuffer(zstandard.compress(content), np.uint8)


def one_sparse(shape: list[Any], gaps: bytes, values: list[float], layout: str = "gap") -> tuple[dict[str, Any], bytes]:
    description = {"count": len(values), "layout": layout, "shape": shape, "values": "F16"}
    return crafted(description, values=("F16", values), positions=packed_bytes(gaps))


def refused(path: Path, reason: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path.name}: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "w"
    for golden in GOLDENS:
        path.write_bytes(golden)
        for length in reversed(range(len(golden))):
            os.truncate(path, length)
            with pytest.raises(ArtifactError):
                read_weights(path)


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_changed_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """A file that was changed is refused or is another valid file; which of them it is, the manifest's digest knows."""
    content = bytearray(data.draw(st.sampled_from(GOLDENS)))
    inside = st.one_of(st.integers(0, len(content) - 1), st.integers(0, 1100))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(inside)] = data.draw(st.integers(0, 255))
    path = tmp_path / "w"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    with contextlib.suppress(ArtifactError):
        assert all(isinstance(array, np.ndarray) for array in read_weights(path).values())


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "w"
    for prefix in (b"", len(content).to_bytes(8, "little")):
        path.write_bytes(prefix + content)
        with pytest.raises(ArtifactError):
            read_weights(path)


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


@pytest.mark.parametrize(
    ("shape", "gaps", "values", "layout", "reason"),
    [
        ([8], b"\0\0", [1, 2, 3], "gap", "tensor 'w': the positions must be 3, one for each value, got 2"),
        ([8], b"\0\0\0", [1, 2], "gap", "tensor 'w': the positions must have at most 2 bytes unpacked"),
        ([8], b"\0\x07", [1, 2], "gap", "tensor 'w': positions must be less than 8, the number of elements, got 8"),
        ([8], b"\0", [0], "gap", "tensor 'w': stored values must not be zero"),
        ([8], b"\0", [-0.0], "gap", "tensor 'w': stored values must not be zero"),
        ([8], b"\0", [np.nan], "gap", "tensor 'w': values must be finite"),
        ([8], b"\0", [1], "csr", "tensor 'w': layout must be one of gap, mask, rows, full"),
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


@pytest.mark.parametrize(
    ("description", "base", "parts", "reason"),
    [
        (MASKED, {}, {"positions": packed_bytes(b"\0\0")}, "tensor 'w': must be in base with its shape"),
        (MASKED, {"w": BASE | {"shape": [3]}}, {"positions": packed_bytes(b"\0\0")}, "must be in base with its shape"),
        (MASKED, {"w": BASE}, {"positions": packed_bytes(b"\0\0"), "values": ("F16", [1, 1])}, "must have ::values"),
        (MASKED, {"w": BASE}, {}, "must have ::values unless they are BASE, ::positions unless full"),
        (MASKED | {"layout": "full"}, {"w": BASE}, {}, "layout must be one of gap, mask for BASE, got full"),
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


def full(dtype: str, count: int = 4, shape: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    return {"count": count, "layout": "full", "shape": list(shape), "values": dtype}


ONES = ("BF16", [0x3F80, 0x3F80])


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


@pytest.mark.usefixtures("traced")
def test_a_bomb_of_values_is_not_unpacked(craft: Callable[..., Path]) -> None:
    """64 MiB in 6 KB: neither with a shape that fits it, nor with a small one; and a reader stays small."""
    bomb, before = packed_bytes(bytes(1 << 26)), tracemalloc.get_traced_memory()[0]
    for description, scales, reason in (
        (full("I8", 1 << 26, (1, 1 << 26)), ONES[1][:1], "must be large enough for 67108864 values"),
        (full("I8"), ONES[1], "the values must have at most 4 bytes unpacked"),
    ):
        path = craft(*crafted(description, values=bomb, scales=("BF16", scales)))
        tracemalloc.reset_peak()
        refused(path, reason)
        assert tracemalloc.get_traced_memory()[1] < before + (1 << 20)


ROWS = 2**28  # of a tensor: counted one by one they would take 2 GiB


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("description", "scales", "reason"),
    [
        ({"count": 1, "layout": "gap", "shape": [ROWS, 1], "values": "I8"}, 1, f"::scales must have {ROWS} scales"),
        ({"count": 1, "layout": "gap", "shape": [ROWS], "values": "I8"}, 0, f"::scales must have {ROWS} scales"),
        ({"count": 2, "layout": "rows", "shape": [ROWS // 2, 2], "values": "I8"}, 2, "::scales must have 1 scales"),
        ({"count": 0, "layout": "full", "shape": [ROWS, 0], "values": "I8"}, 0, f"::scales must have {ROWS} scales"),
        ({"count": 0, "layout": "full", "shape": [ROWS, 0], "values": "F16"}, None, None),
        ({"count": 0, "layout": "rows", "shape": [ROWS, 0], "values": "BF16"}, None, None),
    ],
)
def test_rows_cost_nothing_before_their_scales_are_counted(
    craft: Callable[..., Path], description: dict[str, Any], scales: int | None, reason: str | None
) -> None:
    parts: dict[str, Any] = {"values": (description["values"], [1] * description["count"])}
    if description["layout"] != "full":
        parts["positions"] = packed_bytes(bytes(description["count"] and 1))
    if scales is not None:
        parts["scales"] = "BF16", [0x3F80] * scales
    path, before = craft(*crafted(description, **parts)), tracemalloc.get_traced_memory()[0]
    assert path.stat().st_size < 600
    tracemalloc.reset_peak()
    if reason:
        refused(path, reason)
    else:
        assert read_weights(path)["w"].shape == (ROWS, 0)
    assert tracemalloc.get_traced_memory()[1] < before + (1 << 20)


def test_a_plain_tensor_without_numbers_costs_nothing(craft: Callable[..., Path]) -> None:
    plain = {"dtype": "F32", "shape": [ROWS, 0], "data_offsets": [0, 0]}
    path = craft({"__metadata__": metadata(), "a": plain})
    tracemalloc.start()
    try:
        assert read_weights(path)["a"].shape == (ROWS, 0)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_aliases_count_as_tensors(craft: Callable[..., Path]) -> None:
    """A model may hold each of them on its own: 40 names of 2^24 zeros are 2.5 GiB."""
    description = {"count": 0, "layout": "gap", "shape": [2**24], "values": "F16"}
    header, data = crafted(description, values=("F16", []), positions=packed_bytes(b""))
    aliases = {f"w{number}": "w" for number in range(39)}
    refused(
        craft(header | {"__metadata__": metadata({"w": description}, aliases)}, data),
        f"elements in a file of 951 bytes, got {40 * 2**24}",
    )


def test_positions_are_bytes(craft: Callable[..., Path]) -> None:
    header, data = one_sparse([8], b"\0\1", [1, 2])
    refused(
        craft(header | {"w::positions": header["w::positions"] | {"dtype": "I8"}}, data),
        "parts must be U8 with one axis, got I8",
    )
    assert read_weights(craft(header, data))["w"].tolist() == [1, 0, 2, 0, 0, 0, 0, 0]


def test_not_a_file(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be read")
    refused(tmp_path / "missing", "cannot be read (No such file")


def test_no_memory_is_told(craft: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    path = craft(*one_sparse([8], b"\0", [1]))
    monkeypatch.setattr(packing.np, "zeros", exhausted)
    refused(path, "must fit into memory")


def test_a_changed_file_never_passes_for_another(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writing is deterministic, so two files with the same tensors have the same digest."""
    for name in ("a", "b"):
        write_weights(tmp_path / name, dict(reversed(tensors.items())) if name == "b" else tensors, ["gaps"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file must contain the header"),
        (b"\x02\0\0\0\0\0\0\0{]", "invalid JSON"),
        (GOLDENS[0][:-1], "the tensors must take"),
    ],
)
def test_a_hostile_base(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ArtifactError, match=reason):
        Base(tmp_path)


def test_a_reader_with_little_memory_says_so(craft: Callable[..., Path]) -> None:
    """512 MiB of zeros in some hundred bytes, read by a process that may have 256 MiB more than it has."""
    path = craft(*one_sparse([2**28], b"\0", [1]))
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom mvprune.artifact import ArtifactError, read_weights\n"
        "pages = int(Path('/proc/self/statm').read_text().split()[0])\n"
        "limit = pages * resource.getpagesize() + (256 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try: read_weights(Path(sys.argv[1]))\nexcept ArtifactError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout == "weights.safetensors: the unpacked tensors must fit into memory\n"
