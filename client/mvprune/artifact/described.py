"""The description of a model in an artifact, config.json and the tokenizer, and the model built from it."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from mvprune.artifact.config import build_config
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import read_limited
from mvprune.artifact.generation import write_generation
from mvprune.artifact.header import ELEMENTS_ALWAYS, VERSION
from mvprune.artifact.structures import shrink_to
from mvprune.artifact.vectors import write_vectors
from mvprune.common.strictjson import InvalidJson, parse_json
from mvprune.sources.model_config import CONFIG_FILE
from mvprune.sources.references import InvalidReference

QUANT_METHOD = "mvprune"
"""The name in config.json by which transformers reads the weights once `mvprune.hf` is imported."""

TOKENIZER_FILE = "tokenizer.json"

_MAX_CONFIG = 16 << 20

Shapes = Mapping[str, tuple[int, ...]]


def write_description(folder: Path, model: Any, tokenizer: Any) -> None:
    """Writes config.json, the tokenizer and the settings of generation, or of the vectors, of an artifact.

    Raises:
        ArtifactError: the model is not the one that config.json describes. Whatever transformers raises on a
            configuration or a tokenizer that it cannot write.
    """
    config = _config(model)
    config.quantization_config = {"quant_method": QUANT_METHOD, "version": VERSION}
    config.save_pretrained(folder)
    check_tensors(read_config(folder), {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    write_tokenizer(folder, tokenizer)
    write_generation(folder, model)
    write_vectors(folder, model)


def write_tokenizer(folder: Path, tokenizer: Any) -> None:
    """Writes a tokenizer's files, without the lengths to which its last call cut and padded: whether there was a call
    depends on what is in the cache of tokens."""
    if fast := getattr(tokenizer, "backend_tokenizer", None):
        fast.no_truncation()
        fast.no_padding()
    tokenizer.save_pretrained(folder)
    compact_json(folder / TOKENIZER_FILE)


def description(model: Any) -> dict[str, Any]:
    """The content of config.json, as `read_config` returns it."""
    content: dict[str, Any] = json.loads(_config(model).to_json_string())
    return content


def _config(model: Any) -> Any:
    config: Any = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = torch.float32  # what it was evaluated in, and what `load` gives
    return config


def rebuilt(config: Mapping[str, Any], model: nn.Module) -> Any:
    """The model that a configuration describes, with the tensors of `model`, whose memory it shares.

    Args:
        config: the content of config.json.
        model: one with the same tensors; its removed heads and units are removed here too.

    Raises:
        ArtifactError: the configuration describes no model, or one with other tensors.
    """
    tensors: dict[str, Tensor] = model.state_dict()
    built = model_without_values(config)
    shrink_to(built, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    try:
        built.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise ArtifactError(f"{CONFIG_FILE}: must describe the model that has the tensors: {error}") from error
    built.tie_weights()
    return built.eval()


def model_without_values(config: Mapping[str, Any]) -> Any:
    """The model that a configuration describes, its parameters without memory, its buffers as they are computed from
    the configuration. Raises ArtifactError if it describes none."""
    thread = threading.get_ident()

    def on_meta(_: nn.Module, __: str, parameter: nn.Parameter) -> Any:
        if threading.get_ident() != thread or parameter.is_meta:
            return None
        empty: Any = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        empty._is_hf_initialized = True  # transformers draws no values for it, which took half of the time
        return empty

    hook = register_module_parameter_registration_hook(on_meta)
    try:
        with torch.random.fork_rng([]):  # a buffer may be random before it is overwritten
            return _build(config)
    finally:
        hook.remove()


def check_tensors(config: Mapping[str, Any], found: Shapes) -> None:
    """The model that the configuration describes, without removed heads and units, must have exactly these tensors."""
    with torch.device("meta"):
        model = _build(config)
    shrink_to(model, dict(found))
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if expected != found:
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ArtifactError(
            f"{CONFIG_FILE}: the tensors must be those of the {config['architectures'][0]} that it describes, got "
            f"differences in {', '.join(names):.500}"
        )
    # Those that are not stored, such as masks of positions × positions: only the configuration says how large they are.
    elements = sum(buffer.numel() for buffer in model.buffers())
    if elements > ELEMENTS_ALWAYS:
        raise ArtifactError(
            f"{CONFIG_FILE}: the model's buffers must have at most {ELEMENTS_ALWAYS} elements, got {elements}"
        )


def read_config(directory: Path) -> dict[str, Any]:
    """config.json, without the note that the weights are an artifact's, refused if a key of it reaches code."""
    try:
        config = parse_json(read_limited(directory / CONFIG_FILE, _MAX_CONFIG))
    except (OSError, InvalidJson) as error:
        raise ArtifactError(f"{CONFIG_FILE}: {error}") from error
    if not isinstance(config, dict):
        raise ArtifactError(f"{CONFIG_FILE}: must be a JSON object")
    match config.get("quantization_config"):
        case {"quant_method": str(method)} if method == QUANT_METHOD:
            del config["quantization_config"]
    return config


def _build(config: Mapping[str, Any]) -> transformers.PreTrainedModel:
    """The model that config.json describes, from transformers' own classes only."""
    try:
        built = build_config(config)
    except InvalidReference as error:
        raise ArtifactError(str(error)) from error
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise ArtifactError(
            f"{CONFIG_FILE}: architectures must be a list of one class name, got {architectures!r:.200}"
        )
    model_class = getattr(transformers, architectures[0], None)
    if (
        not isinstance(model_class, type)
        or not issubclass(model_class, transformers.PreTrainedModel)
        or model_class.config_class is not type(built)
    ):
        raise ArtifactError(
            f"{CONFIG_FILE}: architectures must name a model class of transformers for the model_type "
            f"{config['model_type']!r}, got {architectures[0]!r:.200}"
        )
    try:
        return model_class(built)
    except Exception as error:  # whatever a model's constructor raises on a configuration that makes no sense
        raise ArtifactError(
            f"{CONFIG_FILE}: must be a configuration of a {architectures[0]}, got {error!r:.500}"
        ) from error


def compact_json(path: Path) -> None:
    """Writes a tokenizer's JSON again without the white space of its lines, a third of it. It stays what it is:
    transformers reads it from the folder, and people can."""
    if path.exists():
        content = json.loads(path.read_bytes())
        path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
