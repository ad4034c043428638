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

GOLDENS = tuple((Path(__file__).parent / "golden" / f"{name}.safetensors").read_bytes() for name in ("fp16", "int8"))
HALF = {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}
BASE = {"dtype": "F32", "name": "a", "sha256": "0" * 64, "shape": [2]}
SHAPE_2 = {"count": 2, "layout": "gap", "shape": [2], "values": "F16"}
ITEMS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "|i1", "U8": "|u1"}


def metadata(
    packed: Any = None, aliases: Any = None, version: Any = 2, base: Any = None, **more: Any
) -> dict[str, str]:
    fields = {"aliases": aliases or {}, "base": base or {}, "packed": packed or {}, "version": version, **more}
    return {"mvprune": json.dumps(fields)}


def crafted(description: dict[str, Any], **parts: tuple[str, Any]) -> tuple[dict[str, Any], bytes]:
    """A file with one packed tensor w, of parts given as dtype and content."""
    header: dict[str, Any] = {"__metadata__": metadata({"w": description})}
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
        ({"__metadata__": {"mvprune": "{}"}}, b"", "version is None, this reader knows 2"),
        ({"__metadata__": {"mvprune": '{"version":2,"version":2}'}}, b"", "same key twice"),
        ({"__metadata__": {"mvprune": "\ud800"}}, b"", "invalid JSON"),
        ({"__metadata__": metadata(version=1)}, b"", "version is 1"),
        ({"__metadata__": metadata(version=True)}, b"", "version is True"),
        ({"__metadata__": metadata(more=1)}, b"", "expected exactly the fields"),
        ({"__metadata__": metadata([1])}, b"", "expected exactly the fields"),
        ({"__metadata__": metadata()}, b"123", "the tensors take 0 bytes, the file holds 3"),
        ({"__metadata__": metadata(), "a": 1}, b"", "tensor 'a': expected a JSON object"),
        ({"__metadata__": metadata(), "a": HALF | {"dtype": "F64"}}, b"1234", "dtype 'F64' is not one of"),
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
        ({"__metadata__": metadata({"a": SHAPE_2}), "a": HALF}, b"1234", "tensor 'a': a packed tensor has ::values"),
        ({"__metadata__": metadata({"a": {"layout": "gap"}}), "a": HALF}, b"1234", "tensor 'a': expected exactly"),
        ({"__metadata__": metadata(base=[1])}, b"", "expected exactly the fields"),
        ({"__metadata__": metadata(base={"a": BASE}), "a": HALF}, b"1234", "tensor 'a': stored twice"),
        ({"__metadata__": metadata(base={"": BASE})}, b"", "tensor '': not a tensor's name"),
        ({"__metadata__": metadata(base={"a": BASE | {"sha256": "0"}})}, b"", "64 hex digits"),
        ({"__metadata__": metadata(base={"a": BASE | {"dtype": "I64"}})}, b"", "of the base model, expected a dtype"),
        ({"__metadata__": metadata(base={"a": BASE | {"shape": [2**40] * 2}})}, b"", "overflows"),
        ({"__metadata__": metadata(base={"a": BASE | {"path": "../x"}})}, b"", "tensor 'a': expected exactly"),
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
    ("shape", "gaps", "values", "layout", "reason"),
    [
        ([8], b"\0\0", [1, 2, 3], "gap", "tensor 'w': there are 2 positions for 3 values"),
        ([8], b"\0\0\0", [1, 2], "gap", "tensor 'w': the positions unpack to more than 2 bytes"),
        ([8], b"\0\x07", [1, 2], "gap", "tensor 'w': position 8 lies outside 8 elements"),
        ([8], b"\0", [0], "gap", "tensor 'w': a stored value is zero"),
        ([8], b"\0", [-0.0], "gap", "tensor 'w': a stored value is zero"),
        ([8], b"\0", [np.nan], "gap", "tensor 'w': holds a value that is not finite"),
        ([8], b"\0", [1], "csr", "tensor 'w': layout 'csr'"),
        ([8], b"\0", [1], "full", "tensor 'w': a packed tensor has ::values, ::positions unless full"),
        ([8], b"\0", [1], "mask", "tensor 'w': a mask of 8 elements is too large for 1 values"),
        ([8], b"\x08", [1], "rows", "position 8 lies outside 8 elements"),
        ([4, 2], b"\x04", [1, 2], "rows", "position 4 lies outside 4 elements"),
        ([4, 2], b"\0", [1, 2, 3], "rows", "3 values are not what a shape of [4, 2] can have"),
        ([], b"\0", [1], "rows", "without an axis it has no rows"),
        ([2], b"\0\0\0", [1, 2, 3], "gap", "3 values are not what a shape of [2] can have"),
        ([2**35], b"\0", [1], "gap", "the tensors have 34359738368 elements, at most 268435456"),
        ([2**40, 2**40], b"\0", [1], "gap", "tensor 'w': the shape [1099511627776, 1099511627776] overflows"),
        ([8, None], b"\0", [1], "gap", "tensor 'w': the shape is not"),
    ],
)
def test_hostile_positions(
    craft: Callable[..., Path], shape: list[Any], gaps: bytes, values: list[float], layout: str, reason: str
) -> None:
    refused(craft(*one_sparse(shape, gaps, values, layout)), reason)


def full(dtype: str, count: int = 4, shape: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    return {"count": count, "layout": "full", "shape": list(shape), "values": dtype}


ONES = ("BF16", [0x3F80, 0x3F80])


@pytest.mark.parametrize(
    ("description", "parts", "reason"),
    [
        (full("F64"), {"values": ("F32", [1] * 4)}, "layout 'full' of values 'F64'"),
        (full("F16", 3), {"values": ("F16", [1] * 3)}, "3 values are not what a shape of [2, 2] can have"),
        (full("F16", -1), {"values": ("F16", [])}, "-1 values are not"),
        (full("F16"), {"values": ("F16", [1] * 3)}, "3 values are stored, 4 are described"),
        (full("F16"), {"values": ("I8", [1] * 4)}, "a part is I8, expected F16 or U8"),
        (full("F16"), {"values": ("F16", [[1, 1], [1, 1]])}, "with one dimension"),
        (full("F16"), {"values": packed_bytes(b"1234567")}, "the values unpack to 7 bytes, not 8"),
        (full("F16"), {"values": packed_bytes(b"123456789")}, "the values unpack to more than 8 bytes"),
        (full("F16"), {"values": ("U8", [1, 2, 3, 4])}, "the values are not one zstd frame"),
        (full("F16"), {"values": packed_bytes(b"\0\0\0\0\0\x7c\0\0")}, "holds a value that is not finite"),
        (full("BF16"), {"values": ("BF16", [0x7F80, 0, 0, 0])}, "holds a value that is not finite"),
        (full("F32"), {"values": ("F32", [np.nan, 0, 0, 0])}, "holds a value that is not finite"),
        (full("F16", 4, (4,)), {"values": ("F16", [1] * 4), "scales": ONES}, "::scales where they are I8"),
        (full("I8"), {"values": ("I8", [1] * 4)}, "::scales where they are I8"),
        (full("I8", 1, ()), {"values": ("I8", [1]), "scales": ONES}, "without an axis it has no rows"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("F32", [1, 1])}, "a part is F32, expected BF16"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("BF16", [1])}, "there are not 2 scales"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("BF16", [0x7FC0, 0])}, "a scale that is not a finite"),
        (full("I8"), {"values": ("I8", [1] * 4), "scales": ("BF16", [0xBF80, 0])}, "a scale that is not a finite"),
        (full("I8"), {"values": ("I8", [-128, 1, 1, 1]), "scales": ONES}, "holds -128"),
        (full("I8"), {"values": ("I8", [127] * 4), "scales": ("BF16", [0x7F7F, 0])}, "a value that is not finite"),
        (
            {"count": 1, "layout": "gap", "shape": [2, 2], "values": "I8"},
            {"values": ("I8", [1]), "positions": packed_bytes(b"\0"), "scales": ("BF16", [0, 0])},
            "a stored value is zero",
        ),
        (full("F16", 2**28, (2**28,)), {"values": packed_bytes(bytes(8))}, "bytes cannot hold 268435456 values"),
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
        (full("I8", 1 << 26, (1, 1 << 26)), ONES[1][:1], "bytes cannot hold 67108864 values"),
        (full("I8"), ONES[1], "the values unpack to more than 4 bytes"),
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
        ({"count": 1, "layout": "gap", "shape": [ROWS, 1], "values": "I8"}, 1, f"there are not {ROWS} scales"),
        ({"count": 1, "layout": "gap", "shape": [ROWS], "values": "I8"}, 0, f"there are not {ROWS} scales"),
        ({"count": 2, "layout": "rows", "shape": [ROWS // 2, 2], "values": "I8"}, 2, "there are not 1 scales"),
        ({"count": 0, "layout": "full", "shape": [ROWS, 0], "values": "I8"}, 0, f"there are not {ROWS} scales"),
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
        f"the tensors have {40 * 2**24} elements",
    )


def test_positions_are_bytes(craft: Callable[..., Path]) -> None:
    header, data = one_sparse([8], b"\0\1", [1, 2])
    refused(
        craft(header | {"w::positions": header["w::positions"] | {"dtype": "I8"}}, data), "a part is I8, expected U8"
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
    refused(path, "does not fit into memory")


def test_a_changed_file_never_passes_for_another(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writing is deterministic, so two files with the same tensors have the same digest."""
    for name in ("a", "b"):
        write_weights(tmp_path / name, dict(reversed(tensors.items())) if name == "b" else tensors, ["gaps"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file ends inside its header"),
        (b"\x02\0\0\0\0\0\0\0{]", "invalid JSON"),
        (GOLDENS[0][:-1], "the tensors take"),
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
    assert done.stdout == "weights.safetensors: unpacked, it does not fit into memory\n"
