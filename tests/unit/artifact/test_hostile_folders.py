"""Folders that are made to do harm, for every reader: refused in one sentence, soon, with little memory."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tests.sealed import seal
from tests.sparse_artifacts import QUERY, make_artifact
from tests.unit.artifact.hostile_folders import HOSTILE, Hostile
from tests.unit.artifact.saved_models import reseal

from mvprune.artifact import (
    WEIGHTS_FILE,
    ArtifactError,
    LayerCount,
    load,
    read_manifest,
    read_weights,
    round_values,
    verify,
    write_weights,
)
from mvprune.artifact.comparison import compare
from mvprune.artifact.inspection import inspect
from mvprune.artifact.model import CONFIG_FILE
from mvprune.export import export

READERS: dict[str, Callable[[Path], object]] = {
    "verify": verify,
    "load": load,
    "inspect": inspect,
    "csr": lambda folder: export(folder, folder.with_name("csr"), to="csr"),
}
CONFIG = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "vocab_size": 10,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
}
every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artifact that says that it is a BERT, which `load` sees through in the end."""
    folder = tmp_path / "out"
    make_artifact(folder)
    (folder / CONFIG_FILE).write_text(json.dumps(CONFIG))
    seal(folder, read_manifest(folder))
    return folder


def refused(read: Callable[[Path], object], folder: Path, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(ArtifactError) as caught:
        read(folder)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.monotonic() - started < 120


def read_by(*readers: str) -> tuple[Any, list[Hostile]]:
    return "case", [case for case in HOSTILE if case.readers in readers]


@every_reader
@pytest.mark.parametrize(*read_by("all"), ids=lambda case: case.name)
def test_what_is_no_file(folder: Path, read: Callable[[Path], object], case: Hostile) -> None:
    case.spoil(folder)
    refused(read, folder, case.reason)


@every_reader
def test_links_to_files_are_followed_and_verified(folder: Path, read: Callable[[Path], object]) -> None:
    """As in a hub's cache; whatever they lead to must have the digest."""
    for path in list(folder.iterdir()):
        blob = folder.parent / f"blob-{path.name}"
        path.rename(blob)
        path.symlink_to(blob)
    assert verify(folder).files
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt").symlink_to("/etc/hostname")
    refused(read, folder, "vocab.txt: must have ")


def test_a_growing_file_is_not_read(folder: Path) -> None:
    """Its size tells that it is another one: a terabyte of nothing is not read through."""
    os.truncate(folder / "vocab.txt", 1 << 40)
    refused(verify, folder, "vocab.txt: must have 6 bytes, got 1099511627776")


@pytest.mark.parametrize(*read_by("verify", "load"), ids=lambda case: case.name)
def test_hostile_manifests_and_configurations(folder: Path, case: Hostile) -> None:
    case.spoil(folder)
    refused(READERS[case.readers], folder, case.reason)


def test_a_manifest_of_many_layers_is_read(folder: Path) -> None:
    """Large is not hostile: 2,000 layers are read, and told not to be in the file."""
    layers = tuple(LayerCount(f"layer.{number}.dense.weight", (4, 4), 0.25, 4) for number in range(2_000))
    seal(folder, dataclasses.replace(read_manifest(folder), layers=layers))
    refused(inspect, folder, "layers must be stored sparse in weights.safetensors, got 'layer.0.dense.weight'")
    assert compare([("a", read_manifest(folder))] * 2).artifacts[0].densities == {"dense": 0.25}


@pytest.mark.parametrize("name", ["../../evil", "a/b", "a\\b", "x" * 300])
def test_a_tensor_does_not_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    """Exports write a file for every pruned tensor, by its name."""
    with pytest.raises(ArtifactError, match="names of tensors must be"):
        write_weights(tmp_path / "w", {name: np.ones((2, 2), np.float32)}, [name])
    make_artifact(tmp_path / "out")
    path = tmp_path / "out" / WEIGHTS_FILE
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = {key.replace(QUERY, name): value for key, value in json.loads(content[8 : 8 + length]).items()}
    metadata = json.loads(header["__metadata__"]["mvprune"])
    metadata["packed"][name] = metadata["packed"].pop(QUERY)
    text = json.dumps(header | {"__metadata__": {"mvprune": json.dumps(metadata)}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    manifest = read_manifest(tmp_path / "out")
    layers = tuple(dataclasses.replace(one, name=name if one.name == QUERY else one.name) for one in manifest.layers)
    seal(tmp_path / "out", dataclasses.replace(manifest, layers=layers))
    for read in (inspect, READERS["csr"]):
        refused(read, tmp_path / "out", "names of tensors must be 1 to")
    assert not list(tmp_path.rglob("*.npz"))


def test_a_layer_that_is_no_matrix_is_not_exported(folder: Path) -> None:
    """What a layer's name leads to may be anything."""
    layer = LayerCount("classifier.bias", (2,), 0.0, 0)
    seal(folder, dataclasses.replace(read_manifest(folder), layers=(layer,)))
    refused(READERS["csr"], folder, "'classifier.bias' is pruned, but no matrix")
    layer = LayerCount("elsewhere", (2,), 0.0, 0)
    seal(folder, dataclasses.replace(read_manifest(folder), layers=(layer,)))
    refused(READERS["csr"], folder, "1 pruned weights of the manifest are not in it")
    assert list((folder.parent / "csr").iterdir()) == []


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "shape", [[2**33, 0], [0, 2**33], [2**29], [2**15, 2**15]], ids=["empty rows", "empty columns", "long", "square"]
)
@pytest.mark.parametrize("packed", [True, False])
def test_shapes_that_take_memory(craft: Callable[..., Path], shape: list[int], packed: bool) -> None:
    description = {"count": 0, "layout": "gap", "shape": shape, "values": "F16"}
    entry = {"dtype": "F16", "shape": shape, "data_offsets": [0, 0]}
    header: dict[str, Any] = {
        "w::positions": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
        "w::values": {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]},
    }
    metadata = {"aliases": {}, "base": {}, "packed": {"w": description} if packed else {}, "version": 3}
    if not packed:
        header = {"w": entry}
    path = craft({"__metadata__": {"mvprune": json.dumps(metadata)}, **header})
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    with pytest.raises(ArtifactError, match=r"at most 268435456 elements|got 0 bytes"):
        read_weights(path)
    assert tracemalloc.get_traced_memory()[1] < before + (1 << 20)


def test_many_aliases_take_no_quadratic_time(craft: Callable[..., Path]) -> None:
    names = [f"t{number}" for number in range(5_000)]
    header = {name: {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]} for name in names}
    aliases = {f"a{number}": "t4999" for number in range(20_000)}
    metadata = {"aliases": aliases, "base": {}, "packed": {}, "version": 3}
    started = time.monotonic()
    found = read_weights(craft({"__metadata__": {"mvprune": json.dumps(metadata)}, **header}))
    assert len(found) == 25_000
    assert time.monotonic() - started < 120


def test_buffers_that_only_the_configuration_bounds(tmp_path: Path, save: Callable[..., Path]) -> None:
    """GPT-Neo makes a mask of positions × positions in each layer, and stores none: 2^17 positions took 16 GiB."""
    sizes = {"max_position_embeddings": 8, "hidden_size": 2, "num_heads": 1, "num_layers": 1, "vocab_size": 4}
    special = {"bos_token_id": 0, "eos_token_id": 0, "attention_types": [[["global"], 1]]}
    model = transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(**sizes, **special)).eval()
    round_values(model)
    folder = save(model, [])
    config = json.loads((folder / CONFIG_FILE).read_bytes()) | {"max_position_embeddings": 2**17}
    tensors = read_weights(folder / WEIGHTS_FILE) | {"transformer.wpe.weight": np.ones((2**17, 2), np.float32)}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    write_weights(folder / WEIGHTS_FILE, tensors, [])
    reseal(folder)
    with pytest.raises(
        ArtifactError, match="the model's buffers must have at most 268435456 elements, got 17179869184"
    ):
        load(folder)
