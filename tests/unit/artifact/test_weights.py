"""The weights file: what is written is read, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors import safe_open
from safetensors.numpy import load_file

from mvprune.artifact import ArtifactError, Coding, Values, read_weights, stream_weights, write_weights
from mvprune.artifact.values import rounded
from mvprune.artifact.weights import stream_positions

GOLDEN = Path(__file__).parent / "golden"


def same(found: np.ndarray, expected: np.ndarray, kept: type = np.float16) -> bool:
    dtype = kept if expected.dtype.kind == "f" else expected.dtype
    return found.dtype == dtype and found.shape == expected.shape and np.array_equal(found, expected)


@st.composite
def weights(draw: st.DrawFn) -> np.ndarray:
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=40))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = random.standard_normal(shape).astype(np.float16)
    kept = random.random(shape) < draw(st.sampled_from([0, 0.01, 0.1, 0.5, 1]))
    array = np.asarray(np.where(kept, values, 0), draw(st.sampled_from([np.float16, np.float32, np.float64])))
    return array.T if draw(st.booleans()) else array


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(weights(), max_size=3), st.lists(weights(), max_size=2))
def test_floats_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, pruned: list[np.ndarray], dense: list[np.ndarray]
) -> None:
    path = tmp_path_factory.mktemp("weights") / "w"
    names = [f"layer.{index}" for index in range(len(pruned))]
    tensors = dict(zip(names, pruned, strict=True)) | {f"bias.{index}": array for index, array in enumerate(dense)}
    write_weights(path, tensors, names)
    found = read_weights(path)
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert same(found[name], array)
        assert np.count_nonzero(found[name]) == np.count_nonzero(array)


@settings(max_examples=40)
@given(npst.arrays(st.sampled_from(["?", "u1", "i1", "i2", "i4", "i8"]), npst.array_shapes(min_side=0)))
def test_integers_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("weights") / "w"
    write_weights(path, {"ids": array}, ())
    assert same(read_weights(path)["ids"], array)


def test_every_kind_of_tensor(tmp_path: Path, tensors: dict[str, np.ndarray], sparse: tuple[str, ...]) -> None:
    write_weights(tmp_path / "w", tensors, sparse)
    found = read_weights(tmp_path / "w")
    assert found.keys() == tensors.keys()
    assert all(same(found[name], array) for name, array in tensors.items())
    assert found["decoder"] is found["embeddings"]
    found["gaps"][0, 0] = found["ids"][0] = 1  # arrays of one's own


def test_tied_tensors_are_stored_once(tmp_path: Path) -> None:
    table = np.ones((64, 64), np.float32)
    for names in (["one"], ["one", "two", "three"]):
        write_weights(tmp_path / f"{len(names)}", dict.fromkeys(names, table), ["two"] if "two" in names else ["one"])
    assert load_file(tmp_path / "3").keys() == {"one::positions", "one::values"}
    assert (tmp_path / "3").stat().st_size - (tmp_path / "1").stat().st_size < 64
    write_weights(tmp_path / "turned", {"a": table, "b": table.T, "c": table[:32]}, ())
    assert load_file(tmp_path / "turned").keys() == {"a::values", "b::values", "c::values"}


def test_it_is_a_safetensors_file(tmp_path: Path, tensors: dict[str, np.ndarray], sparse: tuple[str, ...]) -> None:
    write_weights(tmp_path / "w", tensors, sparse)
    with safe_open(tmp_path / "w", framework="numpy") as file:
        assert np.array_equal(file.get_tensor("gaps::values"), np.array([0.5, -1, 2, 0.25], np.float16))
        assert np.array_equal(file.get_tensor("ids"), np.arange(5))
        packed = json.loads(file.metadata()["mvprune"])["packed"]
    assert packed["mask"] == {
        "count": np.count_nonzero(tensors["mask"]),
        "layout": "mask",
        "shape": [16, 16],
        "values": "F16",
    }
    assert packed["trimmed"] == {"count": 6, "layout": "rows", "shape": [300, 2], "values": "F16"}
    assert packed["decoder"] == {"count": 33, "layout": "full", "shape": [11, 3], "values": "F16"}


@pytest.mark.parametrize("values", Values)
@pytest.mark.parametrize("embeddings", Values)
def test_every_coding_gives_back_what_was_rounded(tmp_path: Path, values: Values, embeddings: Values) -> None:
    random, coding = np.random.default_rng(0), Coding(values, embeddings)
    pruned = random.normal(0, 0.05, (128, 256)).astype(np.float32) * (random.random((128, 256)) < 0.1)
    pruned[3] = 0
    tensors = {
        "pruned": rounded(pruned, coding.of(pruned=True, shape=pruned.shape), sparse=True),
        "table": rounded(random.normal(0, 0.05, (128, 256)).astype(np.float32), embeddings),
        "cube": rounded(random.normal(0, 3, (4, 5, 6)).astype(np.float32), embeddings),
        "bias": rounded(random.normal(0, 0.05, 128).astype(np.float32), coding.of(pruned=False, shape=(128,))),
    }
    write_weights(tmp_path / "w", tensors, ["pruned"], coding)
    found = dict(stream_weights(tmp_path / "w"))
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert found[name].dtype in (np.float16, np.float32)
        assert np.array_equal(found[name], array)
    entries = load_header(tmp_path / "w")
    assert entries["bias"]["dtype"] == ("F16" if embeddings.is_scaled else embeddings.dtype)
    assert ("pruned::scales" in entries) == values.is_scaled
    assert ("cube::scales" in entries) == embeddings.is_scaled


def load_header(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header


def test_values_that_repeat_are_not_packed_beyond_what_a_reader_takes(tmp_path: Path) -> None:
    ones = np.ones((512, 512), np.float32)
    write_weights(tmp_path / "w", {"w": ones}, ["w"])
    assert load_header(tmp_path / "w")["w::values"]["dtype"] == "F16"
    assert np.array_equal(read_weights(tmp_path / "w")["w"], ones)


@pytest.mark.usefixtures("traced")
def test_memory_stays_near_the_output(tmp_path: Path) -> None:
    """At most one matrix above what is given back, or written."""
    random = np.random.default_rng(0)
    shape, names = (1024, 1024), [f"layer.{index}" for index in range(6)]
    matrix = 4 * shape[0] * shape[1]
    for coding in (Coding(), Coding(Values.INT8, Values.INT8)):
        tensors = {}
        for name in names:
            kept = (random.random(shape) < 0.1) if name < names[4] else 1
            tensors[name] = rounded(
                (random.normal(0, 0.05, shape) * kept).astype(np.float32), coding.values, sparse=name in names[:4]
            )
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        write_weights(tmp_path / "w", tensors, names[:4], coding)
        assert tracemalloc.get_traced_memory()[1] - before < (tmp_path / "w").stat().st_size + matrix
        tracemalloc.reset_peak()
        found = read_weights(tmp_path / "w")
        current, peak = tracemalloc.get_traced_memory()
        assert sum(array.nbytes for array in found.values()) < current - before < peak - before
        assert peak < current + matrix
        del found


def test_reading_needs_numpy_and_zstandard_alone(tmp_path: Path) -> None:
    write_weights(tmp_path / "w", {"w": np.eye(4, dtype=np.float32)}, ["w"])
    code = (
        "import sys\nfor name in ('torch', 'transformers', 'safetensors', 'scipy'): sys.modules[name] = None\n"
        "from pathlib import Path\nfrom mvprune.artifact import read_weights\n"
        "print(read_weights(Path(sys.argv[1]))['w'].sum())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "w"], capture_output=True, text=True, check=True)
    assert done.stdout == "4.0\n"


def test_negative_zeros_of_a_sparse_tensor_are_zeros(tmp_path: Path) -> None:
    write_weights(tmp_path / "w", {"w": np.array([-0.0, 1], np.float32)}, ["w"])
    assert not np.signbit(read_weights(tmp_path / "w")["w"]).any()
    assert load_file(tmp_path / "w")["w::values"].shape == (1,)


@pytest.mark.parametrize("name", ["w", "other"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.nan, "values must be finite"),
        (np.inf, "values must be finite"),
        (65520.0, "values must be within the range of fp16, got 65520"),
        (0.1, "call round_values first"),
        (1e-9, "call round_values first"),
    ],
)
def test_a_value_that_would_change_is_refused(tmp_path: Path, name: str, value: float, reason: str) -> None:
    tensors = {"w": np.ones(3, np.float32), "other": np.ones(3, np.float32)}
    tensors[name][1] = value
    with pytest.raises(ArtifactError, match=f"^weights: tensor '{name}': .*{reason}"):
        write_weights(tmp_path / "weights", tensors, ["w"])


@pytest.mark.parametrize(
    ("tensors", "sparse", "reason"),
    [
        ({"w": np.ones(2)}, ["v"], "sparse tensors must be among the tensors, got 'v'"),
        ({"w": np.ones(2, np.int64)}, ["w"], "a sparse tensor must be of floats, got int64"),
        ({"w": np.ones(2, np.complex64)}, [], "must be one of the format's, got complex64"),
        ({"w": np.ones(2, np.uint16)}, [], "must be one of the format's, got uint16"),
        ({"w::values": np.ones(2)}, [], "names of tensors must be .*, got 'w::values'"),
        ({"": np.ones(2)}, [], "names of tensors must be .*, got ''"),
        ({"a\nb": np.ones(2)}, [], r"names of tensors must be .*, got 'a\\nb'"),
    ],
)
def test_what_the_format_does_not_have_is_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], sparse: list[str], reason: str
) -> None:
    with pytest.raises(ArtifactError, match=reason):
        write_weights(tmp_path / "w", tensors, sparse)


@pytest.mark.parametrize("values", Values)
def test_the_golden_file_reads_as_ever(
    values: Values, rounded_tensors: Callable[[Values], dict[str, np.ndarray]]
) -> None:
    found, expected = read_weights(GOLDEN / f"{values.value}.safetensors"), rounded_tensors(values)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        half = values is Values.FP16 or (values.is_scaled and array.ndim < 2)
        assert same(found[name], array, np.float16 if half else np.float32)


@pytest.mark.parametrize("values", Values)
def test_the_golden_file_is_written_as_ever(
    tmp_path: Path,
    values: Values,
    rounded_tensors: Callable[[Values], dict[str, np.ndarray]],
    sparse: tuple[str, ...],
) -> None:
    """Byte for byte, but for zstd frames, whose bytes depend on the version of zstd, and so the offsets."""
    write_weights(tmp_path / "w", rounded_tensors(values), sparse, Coding(values, values))

    def content(path: Path) -> dict[str, object]:
        file = path.read_bytes()
        header, start = load_header(path), 8 + int.from_bytes(file[:8], "little")
        parts: dict[str, object] = {"metadata": header.pop("__metadata__")}
        for name, entry in header.items():
            data = file[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
            packed = "::" in name and entry["dtype"] == "U8"
            parts[name] = entry["dtype"], zstandard.decompress(data) if packed else (entry["shape"], data)
        return parts

    assert content(tmp_path / "w") == content(GOLDEN / f"{values.value}.safetensors")


def test_the_places_of_kept_weights_are_read_without_the_base_model(tmp_path: Path) -> None:
    array = np.zeros((4, 6), np.float32)
    array[[0, 2, 3], [5, 0, 1]] = [1, -2, 0.5]
    dense = np.ones((3, 3), np.float32)
    path = tmp_path / "w"
    write_weights(path, {"pruned": array, "none": np.zeros((2, 2), np.float32), "dense": dense}, ("pruned", "none"))
    found = {name: places.tolist() for name, places in stream_positions(path)}
    assert found == {"pruned": [5, 12, 19], "none": []}
    with pytest.raises(ArtifactError, match="missing: cannot be read"):
        list(stream_positions(tmp_path / "missing"))
