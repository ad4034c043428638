"""Weights files that were cut, changed or made to do harm: refused in one sentence, nothing else."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mvprune.artifact import ArtifactError, read_weights, weights, write_weights

GOLDEN = (Path(__file__).parent / "golden" / "weights.safetensors").read_bytes()
HALF = {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}


def metadata(sparse: Any = None, aliases: Any = None, version: Any = 1, **more: Any) -> dict[str, str]:
    return {"mvprune": json.dumps({"aliases": aliases or {}, "sparse": sparse or {}, "version": version, **more})}


def one_sparse(shape: list[Any], gaps: bytes, values: list[float], coding: str = "gap") -> tuple[dict[str, Any], bytes]:
    frame = zstandard.compress(gaps)
    data = np.array(values, "<f2").tobytes()
    header = {
        "__metadata__": metadata({"w": {"coding": coding, "shape": shape}}),
        "w::values": {"dtype": "F16", "shape": [len(values)], "data_offsets": [0, len(data)]},
        "w::positions": {"dtype": "U8", "shape": [len(frame)], "data_offsets": [len(data), len(data) + len(frame)]},
    }
    return header, data + frame


def refused(path: Path, reason: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path.name}: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(GOLDEN)
    for length in reversed(range(len(GOLDEN))):
        os.truncate(path, length)
        with pytest.raises(ArtifactError):
            read_weights(path)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """A file that was changed is refused or is another valid file; which of them it is, the manifest's digest knows."""
    content = bytearray(GOLDEN)
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
        (b"[1]", b"", "expected a JSON object"),
        (b"\xff\xfe", b"", "invalid JSON"),
        (b"[" * 100_000, b"", "invalid JSON"),
        (b'{"a":' * 100_000, b"", "invalid JSON"),
        (b'{"a": NaN}', b"", "NaN is not a number"),
        (b'{"a": ' + b"9" * 10_000 + b"}", b"", "invalid JSON"),
        (b'{"a": 1, "a": 2}', b"", "same key twice"),
        ({}, b"", "__metadata__: expected exactly the fields mvprune"),
        ({"__metadata__": {"mvprune": 1}}, b"", "__metadata__"),
        ({"__metadata__": {"mvprune": "{}", "format": "pt"}}, b"", "__metadata__"),
        ({"__metadata__": {"mvprune": "{}"}}, b"", "version is None, this reader knows 1"),
        ({"__metadata__": {"mvprune": '{"version":1,"version":1}'}}, b"", "same key twice"),
        ({"__metadata__": {"mvprune": "\ud800"}}, b"", "invalid JSON"),
        ({"__metadata__": metadata(version=2)}, b"", "version is 2"),
        ({"__metadata__": metadata(version=True)}, b"", "version is True"),
        ({"__metadata__": metadata(more=1)}, b"", "expected exactly the fields"),
        ({"__metadata__": metadata([1])}, b"", "expected exactly the fields"),
        ({"__metadata__": metadata()}, b"123", "the tensors take 0 bytes, the file holds 3"),
        ({"__metadata__": metadata(), "a": 1}, b"", "tensor 'a': expected a JSON object"),
        ({"__metadata__": metadata(), "a": HALF | {"dtype": "F32"}}, b"1234", "dtype 'F32' is not one of"),
        ({"__metadata__": metadata(), "a": HALF | {"dtype": ["F16"]}}, b"1234", "expected exactly the fields dtype"),
        ({"__metadata__": metadata(), "a": HALF | {"more": 1}}, b"1234", "expected exactly the fields dtype"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [3]}}, b"1234", "do not give the 4 bytes"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [-2]}}, b"1234", "tensor 'a': the shape is not"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [2.0]}}, b"1234", "tensor 'a': the shape is not"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [True, 2]}}, b"1234", "tensor 'a': the shape is not"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [1] * 9 + [2]}}, b"1234", "at most 8"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [2**32, 2**32]}}, b"1234", "overflows"),
        ({"__metadata__": metadata(), "a": HALF | {"shape": [0, 2**62], "data_offsets": [0, 0]}}, b"", "overflows"),
        ({"__metadata__": metadata(), "a": HALF | {"data_offsets": [0]}}, b"1234", "two whole numbers"),
        ({"__metadata__": metadata(), "a": HALF | {"data_offsets": [-4, 0]}}, b"1234", "two whole numbers"),
        ({"__metadata__": metadata(), "a": HALF | {"data_offsets": [4, 0]}}, b"1234", "do not give the -4 bytes"),
        ({"__metadata__": metadata(), "a": HALF | {"data_offsets": [4, 8]}}, b"12345678", "starts at 4"),
        ({"__metadata__": metadata(), "a": HALF, "b": HALF}, b"1234", "tensor 'b': its data starts at 0"),
        ({"__metadata__": metadata(), "a": HALF}, b"12345", "take 4 bytes, the file holds 5"),
        ({"__metadata__": metadata(), "a": HALF}, b"\0\x7c\0\0", "tensor 'a': holds a value that is not finite"),
        ({"__metadata__": metadata(), "": HALF}, b"1234", "tensor '': not a tensor's name"),
        ({"__metadata__": metadata(), "\x1b[31m": HALF}, b"1234", "not a tensor's name"),
        ({"__metadata__": metadata(), "a::values": HALF}, b"1234", "not a tensor's name"),
        ({"__metadata__": metadata(), "a" * 5000 + "\n": HALF}, b"1234", "not a tensor's name"),
        (
            {"__metadata__": metadata(), "a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}},
            b"\2",
            "neither 0 nor 1",
        ),
        ({"__metadata__": metadata(aliases={"b": "c"}), "a": HALF}, b"1234", "alias 'b' of 'c'"),
        ({"__metadata__": metadata(aliases={"a": "a"}), "a": HALF}, b"1234", "alias 'a' of 'a'"),
        ({"__metadata__": metadata(aliases={"b": "a", "c": "b"}), "a": HALF}, b"1234", "alias 'c' of 'b'"),
        ({"__metadata__": metadata(aliases={"b": 1}), "a": HALF}, b"1234", "alias 'b' of 1"),
        ({"__metadata__": metadata(aliases={"b": ["a"]}), "a": HALF}, b"1234", "alias 'b' of ['a']"),
        ({"__metadata__": metadata(aliases={"\n": "a"}), "a": HALF}, b"1234", "not a tensor's name"),
        ({"__metadata__": metadata({"a": {"coding": "gap", "shape": [2]}}), "a": HALF}, b"1234", "one ::values"),
        ({"__metadata__": metadata({"a": {"coding": "gap"}}), "a": HALF}, b"1234", "tensor 'a': expected exactly"),
    ],
)
def test_hostile_headers(craft: Callable[..., Path], header: Any, data: bytes, reason: str) -> None:
    refused(craft(header, data), reason)


@pytest.mark.parametrize("length", [17 << 20, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_or_the_bound(craft: Callable[..., Path], length: int) -> None:
    refused(craft({}, length=length), "ends inside its header")
    path = craft({}, length=17 << 20)
    with path.open("r+b") as file:
        file.truncate(20 << 20)  # sparse on disk
    refused(path, "at most 16777216 are allowed")


@pytest.mark.parametrize(
    ("shape", "gaps", "values", "coding", "reason"),
    [
        ([8], b"\0\0", [1, 2, 3], "gap", "tensor 'w': there are 2 positions for 3 values"),
        ([8], b"\0\0\0", [1, 2], "gap", "tensor 'w': the positions unpack to more than 2 bytes"),
        ([8], b"\0\x07", [1, 2], "gap", "tensor 'w': position 8 lies outside 8 elements"),
        ([8], b"\0", [0], "gap", "tensor 'w': a stored value is zero"),
        ([8], b"\0", [-0.0], "gap", "tensor 'w': a stored value is zero"),
        ([8], b"\0", [np.nan], "gap", "tensor 'w': holds a value that is not finite"),
        ([8], b"\0", [1], "csr", "tensor 'w': unknown coding 'csr'"),
        ([2**35], b"\0", [1], "gap", f"more than {weights.MAX_ELEMENTS} elements"),
        ([2**40, 2**40], b"\0", [1], "gap", "tensor 'w': the shape [1099511627776, 1099511627776] overflows"),
        ([8, None], b"\0", [1], "gap", "tensor 'w': the shape is not"),
    ],
)
def test_hostile_sparse_tensors(
    craft: Callable[..., Path], shape: list[Any], gaps: bytes, values: list[float], coding: str, reason: str
) -> None:
    refused(craft(*one_sparse(shape, gaps, values, coding)), reason)


def test_the_parts_of_a_sparse_tensor_have_their_dtypes(craft: Callable[..., Path]) -> None:
    header, data = one_sparse([8], b"\0\1", [1, 2])
    for part, dtype, size in (("w::values", "I16", 2), ("w::positions", "I8", 1)):
        changed = header[part] | {"dtype": dtype, "shape": [np.ptp(header[part]["data_offsets"]).item() // size]}
        refused(craft(header | {part: changed}, data), "tensor 'w': positions must be U8 and values F16")
    header["w::values"]["shape"] = [2, 1]
    refused(craft(header, data), "both with one dimension")
    header["w::values"]["shape"] = [2]
    assert read_weights(craft(header, data))["w"].tolist() == [1, 0, 2, 0, 0, 0, 0, 0]


def test_not_a_file(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be read")
    refused(tmp_path / "missing", "cannot be read: No such file")


def test_no_memory_is_told(craft: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    path = craft(*one_sparse([8], b"\0", [1]))
    monkeypatch.setattr(weights.np, "zeros", exhausted)
    refused(path, "does not fit into memory")


def test_a_changed_file_never_passes_for_another(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writing is deterministic, so two files with the same tensors have the same digest."""
    for name in ("a", "b"):
        write_weights(tmp_path / name, dict(reversed(tensors.items())) if name == "b" else tensors, ["gaps"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
