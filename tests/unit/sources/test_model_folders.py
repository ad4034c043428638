"""Model folders are looked into without loading: counts, and every way to be refused."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvprune.sources import model_config, model_folder
from mvprune.sources.known_models import KNOWN_SIZES, ModelSize
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import InvalidReference

HIDDEN = 8
CONFIG = {"model_type": "bert", "hidden_size": HIDDEN}
TENSORS: dict[str, tuple[int, ...]] = {
    "embeddings.word_embeddings.weight": (20, HIDDEN),
    "encoder.layer.0.attention.self.query.weight": (HIDDEN, HIDDEN),
    "encoder.layer.0.attention.self.query.bias": (HIDDEN,),
    "encoder.layer.0.LayerNorm.weight": (HIDDEN,),
    "encoder.layer.1.attention.self.query.weight": (HIDDEN, HIDDEN),
    "pooler.dense.weight": (HIDDEN, HIDDEN),
}
SIZE = ModelSize(
    base_parameters=20 * HIDDEN + 2 * HIDDEN**2 + 2 * HIDDEN,
    encoder_parameters=2 * HIDDEN**2 + 2 * HIDDEN,
    prunable_weights=2 * HIDDEN**2,
)


def counts(found: ModelSize) -> ModelSize:
    """Without the architecture."""
    return ModelSize(found.base_parameters, found.encoder_parameters, found.prunable_weights)


def header_of(tensors: dict[str, tuple[int, ...]]) -> tuple[dict, int]:
    """A safetensors header, and the bytes of data that it describes."""
    header: dict = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    return header, offset


def write_weights(path: Path, header: object, data_bytes: int) -> None:
    """A safetensors file; the data is a hole, so that large ones cost nothing."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded)
    os.truncate(path, 8 + len(encoded) + data_bytes)


def write_model(folder: Path, tensors: dict[str, tuple[int, ...]] = TENSORS, config: object = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("[UNK]")
    write_weights(folder / "model.safetensors", *header_of(tensors))
    return folder


def test_parameters_are_counted_from_the_header(tmp_path: Path):
    assert counts(inspect_model(write_model(tmp_path))) == SIZE


def test_integers_are_buffers(tmp_path: Path):
    header, size = header_of(TENSORS)
    header["embeddings.position_ids"] = {"dtype": "I64", "shape": [1, 4], "data_offsets": [size, size + 32]}
    write_model(tmp_path)
    write_weights(tmp_path / "model.safetensors", header, size + 32)
    assert counts(inspect_model(tmp_path)) == SIZE


def test_tables_inside_blocks_are_not_prunable(tmp_path: Path):
    tables = {
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 8),
        "encoder.block.0.layer.0.embed_positions.weight": (32, 8),
        "encoder.block.0.layer.0.layer_norm.weight": (8,),
    }
    size = inspect_model(write_model(tmp_path, TENSORS | tables))
    assert size.encoder_parameters == SIZE.encoder_parameters + 2 * 32 * 8 + 8
    assert size.prunable_weights == SIZE.prunable_weights


def test_a_model_that_has_norm_in_its_name_is_counted(tmp_path: Path):
    tensors = {f"roberta_prelayernorm.{name}": shape for name, shape in TENSORS.items()}
    assert counts(inspect_model(write_model(tmp_path, tensors))) == SIZE


def test_shards_are_counted_once_each(tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    names = list(TENSORS)
    first, second = names[:3], names[2:]  # one name is in both
    write_weights(tmp_path / "model-1.safetensors", *header_of({name: TENSORS[name] for name in first}))
    write_weights(tmp_path / "model-2.safetensors", *header_of({name: TENSORS[name] for name in second}))
    shards = dict.fromkeys(first, "model-1.safetensors") | dict.fromkeys(second, "model-2.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    assert counts(inspect_model(tmp_path)) == SIZE
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(InvalidReference, match=r"there is no file .*model-2"):
        inspect_model(tmp_path)


@pytest.mark.parametrize(
    "shards",
    [
        None,
        {},
        [],
        {"a": "../model.safetensors"},
        {"a": "/etc/passwd"},
        {"a": 1},
        {"a": "x.bin"},
        {"a": "\0.safetensors"},
    ],
)
def test_an_index_leads_only_to_files_beside_it(shards: object, tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(InvalidReference, match="weight_map must name files in the same folder"):
        inspect_model(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "model.pth"])
def test_a_pickle_is_refused_with_the_way(name: str, tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(
        InvalidReference, match=rf"must have its weights in safetensors, got the pickle '{name}'.*; convert it with"
    ):
        inspect_model(tmp_path)


def test_a_pickle_beside_safetensors_is_left_alone(tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    assert counts(inspect_model(tmp_path)) == SIZE


def test_a_folder_without_weights(tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InvalidReference, match=r"must have its weights in model\.safetensors, got no such file"):
        inspect_model(tmp_path)
    (tmp_path / "weights.safetensors").touch()
    with pytest.raises(InvalidReference, match=r"got a sparse artifact; `mvpctl export ARTIFACT OUT --to dense`"):
        inspect_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tf_model.h5", r"tf_model\.h5; convert it with transformers 4: .*, from_tf=True\)"),
        ("flax_model.msgpack", r"flax_model\.msgpack; .* from_flax=True"),
        ("model.fp16.safetensors", r"model\.fp16\.safetensors; it is a variant: .* variant="),
        ("model-q4.gguf", r"model-q4\.gguf; give the checkpoint of transformers from which it was made"),
        ("encoder.safetensors", r"encoder\.safetensors; rename it if these are all"),
    ],
)
def test_weights_of_another_form_are_named(tmp_path: Path, name: str, found: str) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    with pytest.raises(InvalidReference, match=rf"must have its weights in model\.safetensors, got {found}"):
        inspect_model(tmp_path)


@pytest.mark.parametrize(
    ("below", "named"),
    [
        (["checkpoint-90", "checkpoint-1000", "runs"], "checkpoint-1000"),
        (["0_Transformer", "1_Pooling"], "0_Transformer"),
        (["refs", "snapshots/9ab1"], "snapshots/9ab1"),
    ],
    ids=["trainer", "sentence-transformers", "cache of the hub"],
)
def test_the_folder_below_that_has_the_model_is_named(tmp_path: Path, below: list[str], named: str) -> None:
    for name in below:
        (tmp_path / name).mkdir(parents=True)
        if name not in ("1_Pooling", "runs", "refs"):
            write_model(tmp_path / name)
    with pytest.raises(InvalidReference, match=rf"must have config\.json, got .*; give '.*/{named}'$"):
        inspect_model(tmp_path)


def test_a_folder_without_a_config(tmp_path: Path):
    with pytest.raises(InvalidReference, match=r"there is no file .*config\.json"):
        inspect_model(tmp_path)
    with pytest.raises(InvalidReference, match="the model must be a folder, got"):
        inspect_model(tmp_path / "missing")
    with pytest.raises(InvalidReference, match="the model must be a folder, got"):
        inspect_model(tmp_path / ("a" * 300))


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, "model_type must be a name"),
        ({"model_type": 3}, "model_type must be a name"),
        (
            {"model_type": "mine", "auto_map": {"AutoModel": "modeling.Mine"}},
            r"auto_map must be left out, got .*needs code",
        ),
        ([1], "must be a JSON object"),
    ],
)
def test_a_config_that_cannot_be_used(config: object, found: str, tmp_path: Path):
    with pytest.raises(InvalidReference, match=found):
        inspect_model(write_model(tmp_path, config=config))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_config_that_is_no_json(content: bytes, tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidReference, match=r"config\.json.* must be a JSON object"):
        inspect_model(tmp_path)


def test_a_config_that_is_too_large(tmp_path: Path):
    write_model(tmp_path)
    os.truncate(tmp_path / "config.json", model_config.MAX_JSON_BYTES + 1)
    with pytest.raises(InvalidReference, match="at most 10,000,000 bytes, got more"):
        inspect_model(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(InvalidReference, match="there is no file"):
        inspect_model(tmp_path)


def test_a_model_without_blocks(tmp_path: Path):
    with pytest.raises(InvalidReference, match="must have numbered blocks"):
        inspect_model(write_model(tmp_path, {"embeddings.weight": (4, 4), "classifier.weight": (2, 4)}))


@pytest.mark.parametrize("kept", [0, 7, 8, 60, -1])
def test_cut_weights(kept: int, tmp_path: Path):
    write_model(tmp_path)
    weights = tmp_path / "model.safetensors"
    os.truncate(weights, kept if kept >= 0 else weights.stat().st_size + kept)
    with pytest.raises(InvalidReference, match=r"model\.safetensors' is cut or corrupt"):
        inspect_model(tmp_path)


def test_bytes_after_the_last_tensor(tmp_path: Path):
    write_model(tmp_path)
    with (tmp_path / "model.safetensors").open("ab") as file:
        file.write(b"abc")
    with pytest.raises(InvalidReference, match="3 bytes belong to no tensor"):
        inspect_model(tmp_path)


def test_a_header_longer_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_model(tmp_path)
    monkeypatch.setattr(model_folder, "MAX_HEADER_BYTES", 100)
    with pytest.raises(InvalidReference, match="header does not fit"):
        inspect_model(tmp_path)


NAME = "encoder.layer.0.dense.weight"
ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"[]", "must be a JSON object"),
        (b"{", "must be a JSON object"),
        ({NAME: 3}, "no usable dtype, shape and offsets"),
        ({NAME: {"dtype": "F32", "shape": [2, 2]}}, "no usable"),
        ({NAME: ENTRY | {"shape": [1] * 65}}, "no usable"),
        ({NAME: ENTRY | {"data_offsets": [0, 16, 32]}}, "no usable"),
        ({NAME: ENTRY | {"data_offsets": [16, 0]}}, "outside the file"),
        ({NAME: ENTRY | {"data_offsets": [-16, 0]}}, "outside the file"),
        ({NAME: ENTRY | {"data_offsets": [0, 17]}}, "outside the file"),
        ({NAME: ENTRY | {"data_offsets": [0.0, 16.0]}}, "outside the file"),
        ({NAME: ENTRY | {"shape": [True, 4]}}, "outside the file"),
        ({NAME: ENTRY | {"shape": [-2, -2]}}, "outside the file"),
        ({NAME: ENTRY | {"shape": [2**64, 0]}}, "outside the file"),
        ({NAME: ENTRY | {"shape": [2, 3]}}, "a wrong size"),
        ({NAME: ENTRY | {"dtype": "F16"}}, "a wrong size"),
    ],
)
def test_a_corrupt_header(header: object, found: str, tmp_path: Path):
    write_model(tmp_path)
    write_weights(tmp_path / "model.safetensors", header, 16)
    with pytest.raises(InvalidReference, match=found):
        inspect_model(tmp_path)


@settings(max_examples=100)
@given(content=st.binary(max_size=200), framed=st.booleans())
def test_any_bytes_as_weights_give_an_error(content: bytes, framed: bool, tmp_path_factory: pytest.TempPathFactory):
    folder = write_model(tmp_path_factory.getbasetemp() / "fuzz")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content if framed else content)
    with pytest.raises(InvalidReference):
        inspect_model(folder)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150)
@given(data=st.data())
def test_a_header_with_anything_in_a_field_gives_an_error_or_the_right_size(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
):
    folder = write_model(tmp_path_factory.getbasetemp() / "fuzz")
    header, size = header_of(TENSORS)
    name = data.draw(st.sampled_from(sorted(TENSORS)))
    field = data.draw(st.sampled_from(["dtype", "shape", "data_offsets", None]))
    if field is None:
        header[name] = data.draw(_JSON)
    else:
        header[name][field] = data.draw(_JSON)
    write_weights(folder / "model.safetensors", header, size)
    try:
        found = inspect_model(folder)
    except InvalidReference:
        return
    assert found.base_parameters <= SIZE.base_parameters  # another dtype may make it a buffer


# Figures of published models


def _published(hub_id: str):
    from transformers import BertConfig, DistilBertConfig, RobertaConfig

    match hub_id.rpartition("/")[2]:
        case "bert-base-uncased":
            return BertConfig()
        case "bert-base-cased":
            return BertConfig(vocab_size=28996)
        case "bert-large-uncased":
            return BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
        case "roberta-base":
            return RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
        case "distilbert-base-uncased":
            return DistilBertConfig()
    raise AssertionError(hub_id)


@pytest.mark.parametrize("hub_id", sorted(KNOWN_SIZES))
def test_known_sizes_are_those_of_the_published_shapes(hub_id: str, tmp_path: Path):
    import torch
    from transformers import AutoModel

    config = _published(hub_id)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert counts(inspect_model(write_model(tmp_path, shapes, config.to_dict()))) == KNOWN_SIZES[hub_id]


def test_bert_base_is_the_published_figure():
    assert KNOWN_SIZES["bert-base-uncased"].encoder_parameters == 85_054_464
    assert KNOWN_SIZES["bert-base-uncased"].prunable_weights == 84_934_656


def test_a_file_written_by_the_library_is_counted(tmp_path: Path):
    from transformers import BertConfig, BertModel

    model = BertModel(
        BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    )
    model.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("[UNK]")
    size = inspect_model(tmp_path)
    pooler = sum(parameter.numel() for parameter in model.pooler.parameters())
    assert size.base_parameters == sum(parameter.numel() for parameter in model.parameters()) - pooler
    assert size.encoder_parameters == sum(parameter.numel() for parameter in model.encoder.parameters())
    assert size.prunable_weights == 2 * (4 * 8 * 8 + 2 * 8 * 16)
