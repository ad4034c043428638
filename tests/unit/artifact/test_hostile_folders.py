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
from tests.sparse_artifacts import QUERY, SHA256, make_artifact, seal
from tests.unit.artifact.saved_models import reseal

from mvprune.artifact import (
    MANIFEST_FILE,
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
    make_artifact(tmp_path / "out")
    configure(tmp_path / "out", CONFIG)
    return tmp_path / "out"


def configure(folder: Path, config: Any) -> None:
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    (folder / CONFIG_FILE).write_bytes(text)
    seal(folder, read_manifest(folder))


def refused(read: Callable[[Path], object], folder: Path, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(ArtifactError) as caught:
        read(folder)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert time.monotonic() - started < 120


@every_reader
@pytest.mark.parametrize("name", [MANIFEST_FILE, CONFIG_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("what", ["a pipe", "a device", "a folder", "a circle"])
def test_what_is_no_file(folder: Path, read: Callable[[Path], object], name: str, what: str) -> None:
    """Reading a pipe or /dev/zero would never end."""
    path = folder / name
    path.unlink()
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    elif what == "a folder":
        path.mkdir()
    else:
        path.symlink_to(path)
    refused(read, folder, "symbolic links" if what == "a circle" else "not a regular file")


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


def listing(path: str) -> dict[str, Any]:
    return {"path": path, "size_bytes": 0, "sha256": SHA256, "media_type": ""}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.update(files=[listing(f"{n}") for n in range(5_000)]), "must have at most 1000 entries"),
        (lambda m: m.update(files=[listing("a/" * 100_000 + "b")]), "at most 255 printable characters"),
        (lambda m: m.update(files=[listing("../out")]), "must be a relative path"),
        (lambda m: m.update(spec=nested(200)), "more than 64 objects and lists in each other"),
        (lambda m: m.update(spec=nested(700)), "more than 64 objects and lists in each other"),
        (lambda m: m.update(spec=nested(100_000)), "invalid JSON"),
        (lambda m: m.update(metrics={"a": 10**400}), "must be a finite number"),
        (lambda m: m["layers"].append({"name": "x", "shape": [2] * 10**5, "density": 0, "nonzero": 2**70}), "nonzero"),
        (lambda m: m.update(seed="x" * 10**6), "seed: must be a whole number"),
    ],
)
def test_hostile_manifests(folder: Path, change: Any, reason: str) -> None:
    """All readers begin here."""
    values = json.loads((folder / MANIFEST_FILE).read_bytes())
    change(values)
    text = json.dumps({key: 0 if isinstance(value, bytes) else value for key, value in values.items()}, sort_keys=True)
    spec = values["spec"]
    content = text.encode() if not isinstance(spec, bytes) else text.encode().replace(b'"spec": 0', b'"spec": ' + spec)
    (folder / MANIFEST_FILE).write_bytes(content)
    refused(verify, folder, reason)


def nested(depth: int) -> bytes:
    """Deeper than Python could write it."""
    return b'{"a":' * depth + b"{}" + b"}" * depth


def test_a_manifest_of_many_layers_is_read(folder: Path) -> None:
    """Large is not hostile: 2,000 layers are read, and told not to be in the file."""
    layers = tuple(LayerCount(f"layer.{number}.dense.weight", (4, 4), 0.25, 4) for number in range(2_000))
    seal(folder, dataclasses.replace(read_manifest(folder), layers=layers))
    refused(inspect, folder, "layers must be stored sparse in weights.safetensors, got 'layer.0.dense.weight'")
    assert compare([("a", read_manifest(folder))] * 2).artifacts[0].densities == {"dense": 0.25}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (b"[" * 100_000, "invalid JSON"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "more than 64 objects and lists"),
        (b" " * (17 << 20), "config.json: must have at most 16777216 bytes"),
        (CONFIG | {"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1000, got 1000000000"),
        (CONFIG | {"num_labels": 10**9}, "num_labels must be at most 1048576, got 1000000000"),
        (CONFIG | {"model_type": "distilbert", "n_layers": 10**9}, "n_layers must be at most 1000, got 1000000000"),
        (CONFIG | {"vocab_size": 10**15}, "the tensors must be those of"),
        (CONFIG | {"hidden_size": 10**9}, "config.json: "),
        (CONFIG | {"num_attention_heads": 0}, "config.json: "),
        (CONFIG | {"attention_probs_dropout_prob": "x"}, "config.json: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_hostile_configurations(folder: Path, config: Any, reason: str) -> None:
    configure(folder, config)
    refused(load, folder, reason)


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
