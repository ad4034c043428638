"""What a client may point at: folders and files under configured roots, and names on the Hugging Face hub.

A reference is text from outside. A path is honoured only where it, symbolic links followed, lies under an allowed
root, and a model folder only where that is true of all that is in it; it is looked into without loading it, and never
unpickled.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from mvprune.artifact.manifest import WEIGHTS_FILE

MAX_LENGTH = 512
MAX_FILES = 10_000  # of a model folder
MAX_CONFIG_BYTES = 10_000_000
MAX_HEADER_BYTES = 100_000_000  # what the safetensors library allows
MAX_RANK = 64  # what torch allows

_REVISION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,198}[A-Za-z0-9_-])?", re.ASCII)
_HUB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?", re.ASCII)
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
_PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
_NOT_PRUNED = re.compile(r"embed|relative_attention_bias", re.IGNORECASE)


class InvalidReference(ValueError):
    """A model or a path that cannot be used; the text says what was given and what is allowed."""


@dataclass(frozen=True)
class HubModel:
    """A model on the hub, `owner/name` or `name`."""

    id: str


@dataclass(frozen=True)
class Roots:
    """Folders that references may lead into, resolved on construction.

    Attributes:
        models: where model names are looked for.
        data: where the tasks' own files are looked for.
        allowed: every folder that paths may lie in; `models` and `data` are always among them.
        buckets: s3://bucket or s3://bucket/path, which references may lie under (see mvprune.buckets).
    """

    models: Path | None = None
    data: Path | None = None
    allowed: tuple[Path, ...] = ()
    buckets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        models, data = (path.expanduser().resolve() if path else None for path in (self.models, self.data))
        every = (*(path.expanduser().resolve() for path in self.allowed), models, data)
        object.__setattr__(self, "models", models)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "allowed", tuple(dict.fromkeys(path for path in every if path is not None)))

    @classmethod
    def from_environment(cls) -> Roots:
        """The roots in MVPRUNE_MODELS, MVPRUNE_DATA, MVPRUNE_ROOTS (several, separated as in PATH) and MVPRUNE_BUCKETS
        (several, separated by commas)."""
        models, data = os.environ.get("MVPRUNE_MODELS"), os.environ.get("MVPRUNE_DATA")
        allowed = os.environ.get("MVPRUNE_ROOTS", "").split(os.pathsep)
        return cls(
            models=Path(models) if models else None,
            data=Path(data) if data else None,
            allowed=tuple(Path(path) for path in allowed if path),
            buckets=tuple(filter(None, os.environ.get("MVPRUNE_BUCKETS", "").split(","))),
        )

    def to_environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads the same roots from; those that are not set are empty.

        Raises:
            InvalidReference: a root's name holds the separator of PATH.
        """
        for path in self.allowed:
            if os.pathsep in str(path):
                raise InvalidReference(f"the root {str(path)!r} holds {os.pathsep!r}, which separates roots")
        return {
            "MVPRUNE_MODELS": str(self.models or ""),
            "MVPRUNE_DATA": str(self.data or ""),
            "MVPRUNE_ROOTS": os.pathsep.join(str(path) for path in self.allowed),
            "MVPRUNE_BUCKETS": ",".join(self.buckets),
        }

    def hold(self, path: Path) -> bool:
        """Whether a resolved path lies in an allowed root."""
        return any(path.is_relative_to(root) for root in self.allowed)


@dataclass(frozen=True)
class ModelSize:
    """Parameters of a model folder.

    Attributes:
        total_parameters: everything in the weights files.
        encoder_parameters: in numbered blocks (`layer.0.`, `h.11.`): weights, biases and norms.
        prunable_weights: the encoder's matrices without embeddings; 84,934,656 for BERT-base.
    """

    total_parameters: int
    encoder_parameters: int
    prunable_weights: int


# Base models without a task head, counted from their published configurations.
_BERT_BASE = ModelSize(109_482_240, 85_054_464, 84_934_656)
_BERT_BASE_CASED = ModelSize(108_310_272, 85_054_464, 84_934_656)
_BERT_LARGE = ModelSize(335_141_888, 302_309_376, 301_989_888)
_ROBERTA_BASE = ModelSize(124_645_632, 85_054_464, 84_934_656)
_DISTILBERT = ModelSize(66_362_880, 42_527_232, 42_467_328)
KNOWN_SIZES: Mapping[str, ModelSize] = MappingProxyType(
    {
        "bert-base-uncased": _BERT_BASE,
        "google-bert/bert-base-uncased": _BERT_BASE,
        "bert-base-cased": _BERT_BASE_CASED,
        "google-bert/bert-base-cased": _BERT_BASE_CASED,
        "bert-large-uncased": _BERT_LARGE,
        "google-bert/bert-large-uncased": _BERT_LARGE,
        "roberta-base": _ROBERTA_BASE,
        "FacebookAI/roberta-base": _ROBERTA_BASE,
        "distilbert-base-uncased": _DISTILBERT,
        "distilbert/distilbert-base-uncased": _DISTILBERT,
    }
)


def resolve_path(ref: str, roots: Roots) -> Path:
    """The path that `ref` leads to, symbolic links followed. It need not exist.

    Raises:
        InvalidReference: not an absolute path, or not under an allowed root.
    """
    _check_text(ref)
    if not ref.startswith("/"):
        raise InvalidReference(f"{ref!r} is not an absolute path; give the path from / on")
    path = _resolved(Path(ref))
    if path is None or not roots.hold(path):
        raise _outside(ref, roots)
    return path


def resolve_model(ref: str, roots: Roots) -> Path | HubModel:
    """The model that `ref` names: an absolute path, a folder under the models root by its name, or a hub id.

    Raises:
        InvalidReference: a path outside the roots, a folder with a symbolic link that leads outside, a relative path,
            or a name that the hub does not allow.
    """
    _check_text(ref)
    if ref.startswith("/"):
        path = resolve_path(ref, roots)
        _check_links(path, roots)
        return path
    if ref.startswith((".", "~")):
        allowed = "an absolute path, a name under the models root or a hub id"
        raise InvalidReference(f"{ref!r} is a relative path; give {allowed}")
    if roots.models is not None and ".." not in ref.split("/"):
        folder = _resolved(roots.models / ref)
        if folder is not None and _is_folder(folder):
            if not roots.hold(folder):
                raise _outside(ref, roots)
            _check_links(folder, roots)
            return folder
    return HubModel(check_hub_id(ref))


def check_inside(path: Path, roots: Roots) -> Path:
    """Where a file that was found in a root really is. Raises InvalidReference if that is outside all roots."""
    real = _resolved(path)
    if real is None or not roots.hold(real):
        raise InvalidReference(
            f"{str(path)!r} is a symbolic link that leads outside the allowed folders, or in a circle"
        )
    return real


def check_revision(revision: str) -> str:
    """`revision`, if it can be a branch, a tag or a commit on the hub. Raises InvalidReference."""
    if not _REVISION.fullmatch(revision) or ".." in revision or "//" in revision:
        allowed = "1 to 200 letters, digits, '-', '_', '.' and '/', as in main, v1.0 or a commit's digest"
        raise InvalidReference(f"{revision[:200]!r} cannot be a branch, a tag or a commit ({allowed})")
    return revision


def check_hub_id(ref: str) -> str:
    """`ref`, if it can be the id of a model or a data set on the hub. Raises InvalidReference."""
    _check_text(ref)
    parts = ref.split("/")
    if len(parts) > 2 or len(ref) > 96 or ".." in ref or "--" in ref or not all(map(_HUB_NAME.fullmatch, parts)):
        allowed = "letters, digits, '-', '_' and '.', as in owner/name, 96 characters at most"
        raise InvalidReference(f"{ref!r} is neither a folder that this machine knows nor a hub id ({allowed})")
    return ref


def inspect_model(folder: Path) -> ModelSize:
    """Checks a model folder and counts its parameters, from config.json and the headers of the safetensors files.

    Raises:
        InvalidReference: no such folder, no usable config.json, code of its own (`auto_map`), no safetensors weights,
            weights that are cut or corrupt, or no numbered blocks with matrices to prune.
    """
    if not _is_folder(folder):
        raise InvalidReference(f"there is no model folder {str(folder)!r}")
    config_file = folder / "config.json"
    config = _json_object(config_file, _read(config_file, MAX_CONFIG_BYTES))
    if "auto_map" in config:
        raise InvalidReference(f"{str(folder)!r} needs code of its own (auto_map in config.json); it is never run")
    if not isinstance(config.get("model_type"), str):
        raise InvalidReference(f"{str(config_file)!r} names no model_type, such as bert")
    parameters: dict[str, tuple[int, ...]] = {}
    for file in _weight_files(folder):
        parameters.update(_float_shapes(file))
    encoder = {name: shape for name, shape in parameters.items() if any(part.isdecimal() for part in name.split("."))}
    size = ModelSize(
        total_parameters=sum(map(math.prod, parameters.values())),
        encoder_parameters=sum(map(math.prod, encoder.values())),
        prunable_weights=sum(
            math.prod(shape)
            for name, shape in encoder.items()
            if len(shape) == 2 and name.endswith(".weight") and not _NOT_PRUNED.search(name)
        ),
    )
    if size.prunable_weights == 0:
        raise InvalidReference(f"{str(folder)!r} has no numbered blocks (layer.0., h.0., …) with matrices to prune")
    return size


def _check_text(ref: str) -> None:
    if not ref:
        raise InvalidReference("the reference is empty; give a path, a name or a hub id")
    if len(ref) > MAX_LENGTH:
        raise InvalidReference(f"{ref[:40]!r}… has {len(ref):,} characters; at most {MAX_LENGTH} are allowed")
    if not ref.isprintable():
        raise InvalidReference(f"{ref!r} holds control or unprintable characters")
    if "://" in ref:
        allowed = "folders and files of the server, hub ids, s3://BUCKET/PATH where the service allows the bucket"
        raise InvalidReference(f"{ref!r} is a URL of a kind that is not read; allowed: {allowed}")


def _resolved(path: Path) -> Path | None:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of symbolic links
        return None


def _check_links(folder: Path, roots: Roots) -> None:
    """Refuses a model folder with a link to outside the roots: whatever is in it may be read."""
    waiting, seen = [folder], {folder}
    files = 0
    while waiting:
        for path in _entries(waiting.pop()):
            files += 1
            if files > MAX_FILES:
                raise InvalidReference(f"{str(folder)!r} holds more than {MAX_FILES:,} files; it is no model's folder")
            real = check_inside(path, roots)
            if real not in seen and _is_folder(real):
                seen.add(real)
                waiting.append(real)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # no folder, no permission: nothing in it can be read
        return []


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long, no permission
        return False


def _outside(ref: str, roots: Roots) -> InvalidReference:
    allowed = ", ".join(str(root) for root in roots.allowed) or "none"
    how = "`mvpctl server start --roots FOLDER` or MVPRUNE_ROOTS allows another"
    return InvalidReference(f"{ref!r} is outside the allowed folders; allowed: {allowed}; {how}")


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, in the order in which transformers looks for them."""
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise InvalidReference(f"{str(folder)!r} cannot be read ({error.strerror})") from None
    if "model.safetensors" in names:
        return [folder / "model.safetensors"]
    if (index := folder / "model.safetensors.index.json").name in names:
        shards = _json_object(index, _read(index, MAX_HEADER_BYTES)).get("weight_map")
        if not isinstance(shards, dict) or not shards or not all(map(_is_file_name, shards.values())):
            raise InvalidReference(f"{str(index)!r} is corrupt: weight_map must name files in the same folder")
        return [folder / name for name in sorted(set(shards.values()))]
    if pickles := sorted(name for name in names if Path(name).suffix in _PICKLE_SUFFIXES):
        convert = "convert it with `model.save_pretrained(folder)` of transformers, on a machine where you trust it"
        raise InvalidReference(
            f"{str(folder)!r} is refused: {pickles[0]!r} is a pickle, which can run code; safetensors only ({convert})"
        )
    if WEIGHTS_FILE in names:
        raise InvalidReference(
            f"{str(folder)!r} is a sparse artifact; `mvpctl export ARTIFACT OUT --to dense` makes it a model folder"
        )
    raise InvalidReference(f"{str(folder)!r} has no weights: there is no model.safetensors")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and "/" not in name and name.endswith(".safetensors")


def _read(path: Path, limit: int) -> bytes:
    with _opened(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InvalidReference(f"{str(path)!r} is larger than {limit:,} bytes")
    return content


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        if not path.is_file():  # a pipe would block
            raise InvalidReference(f"there is no file {str(path)!r}")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InvalidReference(f"{str(path)!r} cannot be read ({error.strerror})") from None


def _json_object(path: Path, content: bytes) -> dict[str, object]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidReference(f"{str(path)!r} is corrupt: no JSON object")
    return value


def _float_shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the floating-point tensors in a safetensors file; integers are buffers, not parameters.

    Format: 8 bytes length of the header (little-endian), the header (JSON: name → dtype, shape, data_offsets), data.
    """
    with _opened(path) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        header_bytes = int.from_bytes(file.read(8), "little")
        data_bytes = file_bytes - 8 - header_bytes
        if data_bytes < 0 or header_bytes > MAX_HEADER_BYTES:
            raise InvalidReference(f"{str(path)!r} is cut or corrupt: its header does not fit")
        header = _json_object(path, file.read(header_bytes))
    end_of_data = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor = f"tensor {name[:80]!r}"
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if len(shape) <= MAX_RANK:
                numbers = [*shape, begin, end]
            case _:
                raise InvalidReference(f"{str(path)!r} is corrupt: {tensor} has no usable dtype, shape and offsets")
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers) or not begin <= end <= data_bytes:
            raise InvalidReference(f"{str(path)!r} is cut or corrupt: {tensor} lies outside the file")
        end_of_data = max(end_of_data, end)
        if dtype in _FLOATS:
            if math.prod(shape) * _FLOATS[dtype] != end - begin:
                raise InvalidReference(f"{str(path)!r} is corrupt: {tensor} has a wrong size")
            yield name, tuple(shape)
    if end_of_data != data_bytes:
        raise InvalidReference(f"{str(path)!r} is corrupt: {data_bytes - end_of_data:,} bytes belong to no tensor")
