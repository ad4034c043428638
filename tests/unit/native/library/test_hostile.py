"""Files that are made to do harm, for the reader in C++: each is refused with a text, as the one in Python does it."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sealed import seal
from tests.unit.artifact import test_hostile_headers as headers
from tests.unit.artifact import test_hostile_tensors as tensors
from tests.unit.artifact.conftest import craft as _craft
from tests.unit.artifact.hostile_files import crafted, one_sparse, packed_bytes
from tests.unit.artifact.hostile_folders import HOSTILE, Hostile
from tests.unit.native.library.artifacts import made, saved
from tests.unit.native.library.interface import ARTIFACT, UNREADABLE, UNSUPPORTED, Model, NativeError
from tests.unit.native.native_parts import FLAGS, NATIVE, ROOT, compiler

from mvprune.artifact import read_manifest

craft = _craft  # a fixture
CHANGES = 2000
pytestmark = pytest.mark.slow  # compiling


@pytest.fixture(scope="module")
def unpack(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], str]:
    """What is wrong with a tensor of a file, by the readers of weights; "" for nothing."""
    library = tmp_path_factory.mktemp("unpack") / "unpack.so"
    names = ("artifact", "layouts", "rounding", "source", "tensors", "weights")
    sources = [*NATIVE.glob("base/*.cpp"), *(NATIVE / "library" / f"{name}.cpp" for name in names)]
    driver = Path(__file__).with_name("unpack.cpp")
    command = [*compiler(), *FLAGS, f"-I{ROOT}", "-shared", *map(str, sources), str(driver), "-o", str(library)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).test_unpack
    function.restype = ctypes.c_char_p

    def read(path: Path, name: str) -> str:
        if path.name != "weights.safetensors":
            path = path.rename(path.with_name("weights.safetensors"))
        return (function(os.fsencode(path.parent), name.encode()) or b"").decode()

    return read


def cases(test: Any) -> list[Any]:
    """The parameters of a test."""
    found: list[Any] = test.pytestmark[0].args[1]
    return found


def refused(text: str) -> None:
    assert text
    assert text != "there is no such tensor"
    assert len(text) < 1000


@pytest.mark.parametrize("case", cases(headers.test_hostile_headers), ids=str)
def test_hostile_headers(craft: Callable[..., Path], unpack: Callable[[Path, str], str], case: Any) -> None:
    header, data, _ = case
    refused(unpack(craft(header, data), "a"))


@pytest.mark.parametrize("case", cases(tensors.test_hostile_positions), ids=str)
def test_hostile_positions(craft: Callable[..., Path], unpack: Callable[[Path, str], str], case: Any) -> None:
    shape, gaps, values, layout, _ = case
    refused(unpack(craft(*one_sparse(shape, gaps, values, layout)), "w"))


@pytest.mark.parametrize("case", cases(tensors.test_hostile_masks_of_a_base), ids=str)
def test_tensors_of_a_base(craft: Callable[..., Path], unpack: Callable[[Path, str], str], case: Any) -> None:
    description, base, parts, _ = case
    refused(unpack(craft(*crafted(description, base, **parts)), "w"))


@pytest.mark.parametrize("case", cases(tensors.test_hostile_values), ids=str)
def test_hostile_values(craft: Callable[..., Path], unpack: Callable[[Path, str], str], case: Any) -> None:
    description, parts, _ = case
    refused(unpack(craft(*crafted(description, **parts)), "w"))


def test_what_is_valid_is_read(craft: Callable[..., Path], unpack: Callable[[Path, str], str]) -> None:
    """The others would pass with a reader that refuses everything."""
    blocks = {"count": 4, "layout": "gap4", "nonzero": 2, "shape": [2, 8], "values": "F16"}
    parts = {"values": ("F16", [0, 1, 0, 2]), "positions": packed_bytes(b"\1")}
    assert unpack(craft(*crafted(blocks, **parts)), "w") == ""
    assert "as many non-zeros" in unpack(craft(*crafted(blocks | {"nonzero": 3}, **parts)), "w")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Those of an artifact."""
    folder = saved(tmp_path_factory.mktemp("hostile") / "out", made("DeBERTa-v3", "ForSequenceClassification"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def resealed(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """Files whose manifest vouches for them."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    seal(folder, read_manifest(folder))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


CONFIGS: list[dict[str, Any]] = [
    {"hidden_size": value} for value in (0, -1, 2**31, 2**63, 1.5, "48", None, True, 47, 24, 96)
]
CONFIGS += [{"num_hidden_layers": value} for value in (0, -1, 3, 2**40, 1001)]
CONFIGS += [{"num_attention_heads": value} for value in (0, -4, 5, 2**33, 96)]
CONFIGS += [{"position_buckets": value} for value in (1, 2, 3, 33, 2**40, 10**6)]
CONFIGS += [{"max_relative_positions": value} for value in (1, 5, 2**50)]
CONFIGS += [
    {"architectures": value} for value in ([], None, ["BertModel"], ["GPT2LMHeadModel"], [1], "x", ["A" * 9999])
]
CONFIGS += [{"hidden_act": "swish"}, {"pos_att_type": []}, {"relative_attention": False}, {"id2label": {"1": "a"}}]
CONFIGS += [{"id2label": [1]}, {"conv_kernel_size": 3}, {"is_decoder": True}, {"norm_rel_ebd": "none", "z_steps": 2}]


@pytest.mark.parametrize("changed", CONFIGS, ids=str)
def test_configurations_of_other_models(changed: dict[str, Any], files: dict[str, bytes], tmp_path: Path) -> None:
    config = json.loads(files["config.json"]) | changed
    with pytest.raises(NativeError) as caught:
        Model.open_files(resealed(tmp_path / "out", files | {"config.json": json.dumps(config).encode()}))
    assert caught.value.status in (ARTIFACT, UNSUPPORTED)
    assert "config.json" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("hostile") / "bert", made("BERT", "ForSequenceClassification"))


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_hostile_folders(case: Hostile, bert: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bert, tmp_path / "out"))
    case.spoil(folder)
    if case.is_harmless:
        with Model.open(folder) as opened, Model.open(bert) as usual:
            assert np.array_equal(opened.run([[5, 6, 7]]).values, usual.run([[5, 6, 7]]).values)
        return
    with pytest.raises(NativeError, match=r"(manifest|config)\.json: |weights\.safetensors: ") as caught:
        Model.open(folder)
    assert caught.value.status in (ARTIFACT, UNREADABLE)
    assert len(str(caught.value)) < 1000
    if case.readers == "all":
        assert case.reason in str(caught.value)


def changed_weights(content: bytes, count: int) -> Iterator[bytes]:
    """The bytes with some of them changed, most of them in the header."""
    source = np.random.default_rng(0)
    end = 8 + int.from_bytes(content[:8], "little")
    for number in range(count):
        changed = bytearray(content)
        for _ in range(int(source.integers(1, 4))):
            place = int(source.integers(8, end)) if number % 3 else int(source.integers(end, len(content)))
            digit = number % 3 == 1 and changed[place : place + 1].isdigit()
            changed[place] = int(source.integers(48, 58)) if digit else int(source.integers(256))
        yield bytes(changed)


def test_random_changes(files: dict[str, bytes], tmp_path: Path) -> None:
    """Each gives a model or an error."""
    opened, said = 0, set()
    for number, content in enumerate(changed_weights(files["weights.safetensors"], CHANGES)):
        given = resealed(tmp_path / str(number), files | {"weights.safetensors": content})
        try:
            with Model.open_files(given) as model:
                model.run([[5, 6, 7]])
                opened += 1
        except NativeError as error:
            said.add(error.status)
    assert said <= {ARTIFACT, UNSUPPORTED}
    assert opened < CHANGES
