"""The weights file: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors import safe_open
from safetensors.numpy import load_file

from mvprune.artifact import ArtifactError, read_weights, write_weights

GOLDEN = Path(__file__).parent / "golden" / "weights.safetensors"


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    kept = np.float16 if expected.dtype.kind == "f" else expected.dtype
    return found.dtype == kept and found.shape == expected.shape and np.array_equal(found, expected)


@st.composite
def weights(draw: st.DrawFn) -> np.ndarray:
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=40))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = random.standard_normal(shape).astype(np.float16)
    kept = random.random(shape) < draw(st.sampled_from([0, 0.01, 0.1, 0.5, 1]))
    array = np.asarray(np.where(kept, values, 0), draw(st.sampled_from([np.float16, np.float32, np.float64])))
    return array.T if draw(st.booleans()) else array


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
    assert load_file(tmp_path / "turned").keys() == {"a", "b", "c"}


def test_it_is_a_safetensors_file(tmp_path: Path, tensors: dict[str, np.ndarray], sparse: tuple[str, ...]) -> None:
    write_weights(tmp_path / "w", tensors, sparse)
    with safe_open(tmp_path / "w", framework="numpy") as file:
        assert np.array_equal(file.get_tensor("gaps::values"), np.array([0.5, -1, 2, 0.25], np.float16))
        assert np.array_equal(file.get_tensor("ids"), np.arange(5))
        assert json.loads(file.metadata()["mvprune"])["sparse"]["mask"] == {"coding": "mask", "shape": [16, 16]}


def test_negative_zeros_of_a_sparse_tensor_are_zeros(tmp_path: Path) -> None:
    write_weights(tmp_path / "w", {"w": np.array([-0.0, 1], np.float32)}, ["w"])
    assert not np.signbit(read_weights(tmp_path / "w")["w"]).any()
    assert load_file(tmp_path / "w")["w::values"].shape == (1,)


@pytest.mark.parametrize("name", ["w", "other"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.nan, "not finite"),
        (np.inf, "not finite"),
        (65520.0, "too large for fp16"),
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
        ({"w": np.ones(2)}, ["v"], "'v' is not among"),
        ({"w": np.ones(2, np.int64)}, ["w"], "only floats"),
        ({"w": np.ones(2, np.complex64)}, [], "complex64 has no place"),
        ({"w": np.ones(2, np.uint16)}, [], "uint16 has no place"),
        ({"w::values": np.ones(2)}, [], "tensor name 'w::values'"),
        ({"": np.ones(2)}, [], "tensor name ''"),
        ({"a\nb": np.ones(2)}, [], r"tensor name 'a\\nb'"),
    ],
)
def test_what_the_format_does_not_have_is_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], sparse: list[str], reason: str
) -> None:
    with pytest.raises(ArtifactError, match=reason):
        write_weights(tmp_path / "w", tensors, sparse)


def test_the_golden_file_reads_as_ever(tensors: dict[str, np.ndarray]) -> None:
    found = read_weights(GOLDEN)
    assert found.keys() == tensors.keys()
    assert all(same(found[name], array) for name, array in tensors.items())


def test_the_golden_file_is_written_as_ever(
    tmp_path: Path, tensors: dict[str, np.ndarray], sparse: tuple[str, ...]
) -> None:
    """Byte for byte, but for zstd frames, whose bytes depend on the version of zstd, and so the offsets."""
    write_weights(tmp_path / "w", tensors, sparse)

    def content(path: Path) -> dict[str, object]:
        with safe_open(path, framework="numpy") as file:
            parts: dict[str, object] = {"metadata": file.metadata()}
            for name in file.keys():  # noqa: SIM118
                array = file.get_tensor(name)
                packed = name.endswith("::positions")
                data = zstandard.decompress(array.data) if packed else array.tobytes()
                parts[name] = (array.dtype.str, None if packed else array.shape, data)
            return parts

    assert content(tmp_path / "w") == content(GOLDEN)
