"""Model folders, looked into without loading: config.json, the headers of the safetensors files, the tokenizer."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mvprune.common.blocks import in_block
from mvprune.common.excerpts import shown
from mvprune.sources.known_models import Architecture, InspectedModel
from mvprune.sources.model_config import (
    CONFIG_FILE,
    MAX_JSON_BYTES,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    WEIGHTS_FILE,
    check_config,
    check_pointers,
    check_tokenizer,
    has_vocabulary,
    json_object,
    open_regular,
    read_json,
    without_tokenizer,
)
from mvprune.sources.model_types import BASES, OF_NO_TEXT, name_in_task
from mvprune.sources.references import InvalidReference, is_folder
from mvprune.sources.sentence_transformers import (
    LENGTH_FILE,
    MODULES_FILE,
    SETTINGS_FILE,
    SentenceEmbedding,
    read_sentence_embedding,
)

MAX_HEADER_BYTES = 100_000_000  # what the safetensors library allows
_ADAPTER_CONFIG, _INDEX = "adapter_config.json", "model.safetensors.index.json"
# The files that `inspect_model` reads whole, and how many bytes they may have. Of others it reads the beginning: of
# safetensors files the header, and of small files enough to know a pointer of git-lfs.
READ_WHOLE: Mapping[str, int] = {
    **dict.fromkeys((CONFIG_FILE, _ADAPTER_CONFIG, TOKENIZER_CONFIG, SPECIAL_TOKENS), MAX_JSON_BYTES),
    **dict.fromkeys((MODULES_FILE, SETTINGS_FILE, LENGTH_FILE), MAX_JSON_BYTES),
    _INDEX: MAX_HEADER_BYTES,
}
MAX_RANK = 64  # what torch allows
_MAX_MATRICES = 10_000  # whose names are compared with patterns: those of a thousand layers

_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_QUANTIZED = ("I8", "U8", "I16", "U16", "I32", "U32", "F8_E4M3", "F8_E5M2", "F4")
_PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
_NOT_PRUNED = re.compile(r"embed|relative_attention_bias", re.IGNORECASE)
_EMBEDDINGS = re.compile(r"embed|shared|\bwte\b|\bwpe\b", re.IGNORECASE)
_NOT_BASE = re.compile(r"(^|\.)(pooler|lm_head)\.")
# transformers reads these in place of model.safetensors.
_DISTRIBUTED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")

_BELOW = ("*", "snapshots/*")
_WITH_4 = "convert it with transformers 4: AutoModel.from_pretrained(folder, {}=True).save_pretrained(new_folder)"
# Names of files with weights that are not read, and what to do.
_OTHER_WEIGHTS = tuple(
    (re.compile(name), how)
    for name, how in {
        r"tf_model\.h5": _WITH_4.format("from_tf"),
        r"flax_model\.msgpack": _WITH_4.format("from_flax"),
        r"model\.[\w-]+(-\d{5}-of-\d{5})?\.safetensors": (
            "it is a variant: AutoModel.from_pretrained(folder, variant=...).save_pretrained(new_folder)"
        ),
        r".+\.(gguf|onnx|mlmodel|tflite)": "give the checkpoint of transformers from which it was made",
        r".+\.safetensors": "rename it if these are all of the model's weights",
    }.items()
)

# Families whose tensors and config keys have BERT's names, and in which each key is the length of its tensor.
_BERT_LIKE = (
    "bert",
    "camembert",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "electra",
    "ernie",
    "megatron-bert",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
)
_LAYERS = dict.fromkeys(_BERT_LIKE, (("num_hidden_layers",), re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\."))) | {
    "distilbert": (("n_layers", "num_hidden_layers"), re.compile(r"(?:^|\.)transformer\.layer\.(\d+)\.")),
}
_HEADS = ("hidden_size", "dim"), ("num_attention_heads", "n_heads")  # keys of their width, and of their number
# How the name of a table of embeddings ends → the key of config.json that is its number of rows.
_TABLES = {
    "embeddings.word_embeddings.weight": "vocab_size",
    "embeddings.position_embeddings.weight": "max_position_embeddings",
    "embeddings.token_type_embeddings.weight": "type_vocab_size",
}


@dataclass(frozen=True)
class _Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]


def inspect_model(folder: Path) -> InspectedModel:
    """Checks a model folder and counts its parameters, from its JSON files and the headers of the safetensors files.

    Raises:
        InvalidReference: no such folder, no usable config.json, no model of text, keys that name code, no safetensors
            weights, weights that are cut, corrupt, quantized or of other shapes than config.json says, an adapter,
            files that git-lfs has not fetched, no numbered blocks with matrices to prune, or no tokenizer.
    """
    if not is_folder(folder):
        raise InvalidReference(f"the model must be a folder, got {str(folder)!r}, where there is none")
    check_pointers(folder)
    _check_adapter(folder)
    config_file = folder / CONFIG_FILE
    if not config_file.is_file() and (below := _models_below(folder)):
        others = f"; {len(below)} folders in it have one" if len(below) > 1 else ""
        raise InvalidReference(
            f"the model's folder must have {CONFIG_FILE}, got {str(folder)!r}, which has none{others}; give "
            f"{str(below[-1])!r}"
        )
    config = read_json(config_file)
    check_config(config, f"{str(config_file)!r}")
    if not isinstance(model_type := config.get("model_type"), str):
        raise InvalidReference(
            f"{str(config_file)!r}: model_type must be a name, such as bert, got {model_type!r:.100}"
        )
    if OF_NO_TEXT.fullmatch(model_type):
        raise InvalidReference(
            f"{str(config_file)!r}: model_type must be that of a model of text, got {model_type!r}; give a model such "
            "as BERT"
        )
    check_tokenizer(folder, f"{str(folder)!r}: ")
    tensors = {tensor.name: tensor for file in _weight_files(folder) for tensor in _tensors(file)}
    _check_quantized(folder, tensors)
    parameters = {name: tensor for name, tensor in tensors.items() if tensor.dtype in _FLOATS}
    _check_layers(config, config_file, parameters)
    _check_tables(config, config_file, parameters)
    encoder = [tensor for tensor in parameters.values() if in_block(tensor.name)]
    prunable = {
        tensor.name: tensor.shape
        for tensor in encoder
        if len(tensor.shape) == 2 and tensor.name.endswith(".weight") and not _NOT_PRUNED.search(tensor.name)
    }
    size = InspectedModel(
        base_parameters=sum(math.prod(tensor.shape) for tensor in _base(parameters)),
        encoder_parameters=sum(math.prod(tensor.shape) for tensor in encoder),
        prunable_weights=sum(map(math.prod, prunable.values())),
        architecture=replace(_architecture(config, prunable), vectors=_vectors(folder)),
    )
    if size.prunable_weights == 0:
        blocks = "numbered blocks (layer.0., h.0., …) with matrices to prune"
        raise InvalidReference(f"{str(folder)!r} must have {blocks}, got none")
    if not has_vocabulary(folder):
        raise InvalidReference(without_tokenizer(str(folder)))
    return size


def _models_below(folder: Path) -> list[Path]:
    """The folders in a Trainer's output, an old model of sentence-transformers or the hub's cache that have a
    config.json; the last checkpoint comes last."""
    found = [path for pattern in _BELOW for path in folder.glob(f"{pattern}/{CONFIG_FILE}")]
    return sorted(
        (path.parent for path in found), key=lambda path: (int((re.findall(r"\d+", path.name) or "0")[-1]), path)
    )


def _architecture(config: Mapping[str, object], prunable: Mapping[str, tuple[int, ...]]) -> Architecture:
    parts = [config, *(part for part in config.values() if isinstance(part, dict))]
    types = tuple(str(part["model_type"]) for part in parts if "model_type" in part)
    width, heads = (next((n for name in names if isinstance(n := config.get(name), int)), 0) for names in _HEADS)
    shapes = {}
    if types[0] in BASES and len(prunable) <= _MAX_MATRICES:  # in others a matrix may have its inputs first
        for name, (rows, columns) in prunable.items():
            shapes[name_in_task(name.removesuffix(".weight"), types[0])] = rows, columns
    return Architecture(types, width // heads if heads > 0 else 0, shapes, config.get("is_decoder") is True)


def _vectors(folder: Path) -> SentenceEmbedding | str | None:
    try:
        return read_sentence_embedding(folder)
    except InvalidReference as error:
        return str(error)


def _base(parameters: Mapping[str, _Tensor]) -> list[_Tensor]:
    """The parameters under the name that blocks and embeddings have in common: `bert.`, but not those of `cls.`."""
    inner = [
        name.split(".") for name, tensor in parameters.items() if in_block(tensor.name) or _EMBEDDINGS.search(name)
    ]
    prefix = [parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*inner, strict=False))]
    return [
        tensor
        for name, tensor in parameters.items()
        if name.split(".")[: len(prefix)] == prefix and not _NOT_BASE.search(name)
    ]


def _check_adapter(folder: Path) -> None:
    if (folder / _ADAPTER_CONFIG).exists():
        base = read_json(folder / _ADAPTER_CONFIG).get("base_model_name_or_path")
        raise InvalidReference(
            f"{str(folder)!r} must be a whole model, got an adapter (adapter_config.json) of the model {base!r:.100}; "
            "merge it: PeftModel.from_pretrained(model, folder).merge_and_unload().save_pretrained(new_folder), and "
            "give the new folder, with the tokenizer"
        )


def _check_quantized(folder: Path, tensors: Mapping[str, _Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype in _QUANTIZED and in_block(tensor.name) and "weight" in name.rpartition(".")[2]:
            raise InvalidReference(
                f"{str(folder)!r}: the weights must be floating-point, got {tensor.dtype} in {shown(name)}; give the "
                "checkpoint that was quantized"
            )


def _check_layers(config: Mapping[str, object], file: Path, parameters: Mapping[str, _Tensor]) -> None:
    if config["model_type"] not in _LAYERS:
        return
    keys, pattern = _LAYERS[str(config["model_type"])]
    found = {match[1] for name in parameters if (match := pattern.search(name))}
    for key in keys:
        if found and key in config and config[key] != len(found):
            raise InvalidReference(
                f"{str(file)!r}: {key} must be {len(found)}, the number of layers in the weights, got "
                f"{config[key]!r:.100}; set it to {len(found)}, or save the smaller model with save_pretrained of "
                "transformers"
            )


def _check_tables(config: Mapping[str, object], file: Path, parameters: Mapping[str, _Tensor]) -> None:
    if config["model_type"] not in _LAYERS:
        return
    for name, tensor in parameters.items():
        key = table_key(name)
        if key in config and config[key] != tensor.shape[0] and not _is_ignored(key, config):
            raise InvalidReference(
                f"{str(file)!r}: {key} must be {tensor.shape[0]}, the rows of {name} {list(tensor.shape)} in the "
                f"weights, got {config[key]!r:.100}; {table_remedy(key, tensor.shape[0], config[key])}"
            )


def _is_ignored(key: str, config: Mapping[str, object]) -> bool:
    """DeBERTa's positions are relative: its checkpoints may have a table that the model has not."""
    return key == "max_position_embeddings" and str(config["model_type"]).startswith("deberta")


def table_key(name: str) -> str:
    """The key of config.json that is the number of rows of the tensor `name`; "" if it is no table of embeddings."""
    return next((key for ending, key in _TABLES.items() if name.endswith(ending)), "")


def table_remedy(key: str, found: int, described: object) -> str:
    """The remedy if a table of embeddings has other rows than `key` of config.json says.

    Args:
        key: of `table_key`.
        found: rows of the table in the checkpoint.
        described: what config.json says.
    """
    remedy = f"set {key} to {found} in config.json"
    if key == "vocab_size":
        remedy += f", or call model.resize_token_embeddings({described}) and save the model"
    return remedy


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, in the order in which transformers looks for them."""
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise InvalidReference(f"{str(folder)!r} cannot be read ({error.strerror})") from None
    if any(map(_DISTRIBUTED.fullmatch, names)):
        raise InvalidReference(
            f"{str(folder)!r} must have its weights in model.safetensors, got a distributed checkpoint "
            "(shard-…-model-….safetensors); save the model with save_pretrained of transformers"
        )
    if "model.safetensors" in names:
        return [folder / "model.safetensors"]
    if (index := folder / _INDEX).name in names:
        shards = read_json(index, READ_WHOLE[_INDEX]).get("weight_map")
        if not isinstance(shards, dict) or not shards or not all(map(_is_file_name, shards.values())):
            raise InvalidReference(f"{str(index)!r} is corrupt: weight_map must name files in the same folder")
        return [folder / name for name in sorted(set(shards.values()))]
    if pickles := sorted(name for name in names if Path(name).suffix in _PICKLE_SUFFIXES):
        convert = "convert it with `model.save_pretrained(folder)` of transformers, on a machine where you trust it"
        raise InvalidReference(
            f"{str(folder)!r} must have its weights in safetensors, got the pickle {pickles[0]!r}, which can run code; "
            f"{convert}"
        )
    if WEIGHTS_FILE in names:
        raise InvalidReference(
            f"{str(folder)!r} must be a model, got a sparse artifact; `mvpctl export ARTIFACT OUT --to dense` makes one"
        )
    found = next(
        ((name, how) for name in sorted(names) for ending, how in _OTHER_WEIGHTS if ending.fullmatch(name)), None
    )
    got = f"{found[0]}; {found[1]}" if found else "no such file"
    raise InvalidReference(f"{str(folder)!r} must have its weights in model.safetensors, got {got}")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and "/" not in name and name.endswith(".safetensors")


def _tensors(path: Path) -> Iterator[_Tensor]:
    """The tensors of a safetensors file, from its header.

    Format: 8 bytes length of the header (little-endian), the header (JSON: name → dtype, shape, data_offsets), data.
    """
    with open_regular(path) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        header_bytes = int.from_bytes(file.read(8), "little")
        data_bytes = file_bytes - 8 - header_bytes
        if data_bytes < 0 or header_bytes > MAX_HEADER_BYTES:
            raise InvalidReference(f"{str(path)!r} is cut or corrupt: its header does not fit")
        header = json_object(path, file.read(header_bytes))
    end_of_data = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor = f"tensor {shown(name)}"
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if len(shape) <= MAX_RANK:
                numbers = [*shape, begin, end]
            case _:
                raise InvalidReference(f"{str(path)!r} is corrupt: {tensor} has no usable dtype, shape and offsets")
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers) or not begin <= end <= data_bytes:
            raise InvalidReference(f"{str(path)!r} is cut or corrupt: {tensor} lies outside the file")
        end_of_data = max(end_of_data, end)
        if dtype in _FLOATS and math.prod(shape) * _FLOATS[dtype] != end - begin:
            raise InvalidReference(f"{str(path)!r} is corrupt: {tensor} has a wrong size")
        yield _Tensor(name, dtype, tuple(shape))
    if end_of_data != data_bytes:
        raise InvalidReference(f"{str(path)!r} is corrupt: {data_bytes - end_of_data:,} bytes belong to no tensor")
