"""manifest.json: what an artifact is, where it comes from, what it measures, and the digests of its files."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from mvprune.artifact.class_results import ClassResult
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import open_file, read_limited
from mvprune.artifact.typed import decode
from mvprune.common.strictjson import InvalidJson, parse_json

MANIFEST_FILE = "manifest.json"

MAX_MANIFEST = 16 << 20
_MAX_FILES = 1000
_MAX_PATH = 255  # characters
_FLOPS = ("dense_flops", "sparse_flops")  # fields of an accounting; older manifests lack them
_MAY_BE_EMPTY = ("notes", "examples", "classes", "dense_classes")  # and are then left out
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ArtifactFile:
    """One file: its path relative to the artifact, '/'-separated, and what its bytes must be."""

    path: str
    size_bytes: int
    sha256: str
    media_type: str

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_counts(self, "size_bytes")
        _check_sha256(self.sha256)


@dataclass(frozen=True)
class ModelSource:
    """The model that was compressed: as it was named, its hub revision ("" for a folder), a digest of its weights."""

    name: str
    revision: str
    sha256: str

    def __post_init__(self) -> None:
        _check_sha256(self.sha256)


@dataclass(frozen=True)
class DatasetSource:
    """The data it was trained and evaluated on: a name, a digest of the content, the number of examples."""

    name: str
    fingerprint: str
    train_rows: int
    validation_rows: int

    def __post_init__(self) -> None:
        _check_counts(self, "train_rows", "validation_rows")


@dataclass(frozen=True)
class Accounting:
    """Exact counts of a compressed model, taken after `round_values`; densities are fractions KEPT."""

    target_density: float
    density: float  # kept_weights / prunable_weights
    prunable_weights: int
    kept_weights: int  # non-zero prunable weights
    encoder_parameters: int
    encoder_nonzero: int  # kept weights plus biases and norms of the encoder
    total_parameters: int
    total_nonzero: int
    dense_bytes: int  # all parameters in fp32
    # `save_model` fills these in:
    sparse_bytes: int = 0  # the weights file
    encoder_bytes: int = 0  # the part that is for the encoder
    embedding_bytes: int = 0
    # Of a forward pass over one input of the run's max_length, 2 a multiply-add. 0: not counted, as in older manifests.
    dense_flops: int = 0
    sparse_flops: int = 0  # without those of pruned weights

    def __post_init__(self) -> None:
        _check_fractions(self, "target_density", "density")
        _check_counts(self, *(field.name for field in fields(self) if not field.name.endswith("density")))
        for part, whole in (
            ("kept_weights", "prunable_weights"),
            ("encoder_nonzero", "encoder_parameters"),
            ("total_nonzero", "total_parameters"),
            ("sparse_flops", "dense_flops"),
        ):
            if getattr(self, part) > getattr(self, whole):
                raise ArtifactError(
                    f"{part} must be at most {whole}, {getattr(self, whole)}, got {getattr(self, part)}"
                )


@dataclass(frozen=True)
class LayerCount:
    """One pruned weight: its name in the state dict, its shape, and how much of it is left."""

    name: str
    shape: tuple[int, ...]
    density: float
    nonzero: int

    def __post_init__(self) -> None:
        _check_fractions(self, "density")
        _check_counts(self, "nonzero")
        if any(length < 0 for length in self.shape) or self.nonzero > math.prod(self.shape):
            raise ArtifactError(f"nonzero must fit the shape {list(self.shape)}, got {self.nonzero}")


@dataclass(frozen=True)
class WrittenExample:
    """What a model that writes text wrote from one of the validation sources, with what the dense model wrote, "" where
    that is not known. Long texts are cut."""

    source: str
    dense: str
    pruned: str


@dataclass(frozen=True, kw_only=True)
class ResultInfo:
    """Everything a manifest says but the files."""

    spec: Mapping[str, Any]
    """The request: a JSON object (the compression spec with all its defaults)."""
    model: ModelSource
    dataset: DatasetSource
    metrics: Mapping[str, float]
    """``eval/…`` of the pruned model, ``dense/…`` of the dense one, ``delta/…`` the difference;
    ``delta_low/…`` and ``delta_high/…`` its confidence interval, for the primary metric."""
    primary_metric: str
    accounting: Accounting
    layers: tuple[LayerCount, ...]
    versions: Mapping[str, str]
    """Package → version, of what produced the artifact."""
    seed: int
    notes: tuple[str, ...] = ()
    """Guesses, replacements and warnings of the run, a sentence each."""
    examples: tuple[WrittenExample, ...] = ()
    """Of a model that writes text from another one."""
    classes: tuple[ClassResult, ...] = ()
    """Of a model that answers with classes."""
    dense_classes: tuple[ClassResult, ...] = ()
    """The same of the dense model, where that was measured."""

    @property
    def activations(self) -> Literal["fp32", "int8"]:
        """How the sparse runtime is to compute, and how the metrics were measured."""
        asked = self.spec.get("activations")  # a job's is in capitals
        return "int8" if isinstance(asked, str) and asked.lower() == "int8" else "fp32"

    @property
    def spec_sha256(self) -> str:
        """The digest of the spec as JSON with sorted keys and no white space."""
        return hashlib.sha256(_dump(self.spec, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Manifest(ResultInfo):
    """An artifact. Its identity is the SHA-256 of the bytes of manifest.json, which `to_json` gives."""

    VERSION: ClassVar[int] = 3

    files: tuple[ArtifactFile, ...]

    def __post_init__(self) -> None:
        if len(self.files) > _MAX_FILES:
            raise ArtifactError(f"files must have at most {_MAX_FILES} entries, got {len(self.files)}")
        _check_collisions([file.path for file in self.files])

    @property
    def digest(self) -> str:
        """The artifact's identity: SHA-256, 64 lower-case hex digits."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @property
    def total_bytes(self) -> int:
        """Of all files of the artifact, the manifest among them."""
        return len(self.to_json()) + sum(file.size_bytes for file in self.files)

    def to_json(self) -> bytes:
        """The one canonical form: ASCII JSON, sorted keys, indented by 2, a newline at the end.

        Raises:
            ArtifactError: a field has the wrong type or a value that JSON does not know (NaN).
        """
        checked = decode(Manifest, parse_json(_dump(vars(self)).encode()), MANIFEST_FILE)
        plain = asdict(checked) | {"spec_sha256": checked.spec_sha256, "version": self.VERSION}
        for name in _MAY_BE_EMPTY:
            if not plain[name]:
                del plain[name]
        if not checked.accounting.dense_flops:
            for name in _FLOPS:
                del plain["accounting"][name]
        return (_dump(plain, indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        """Reads a manifest and checks it in full.

        Raises:
            ArtifactError: names the field, what it holds and what is allowed.
        """
        if len(content) > MAX_MANIFEST:
            raise ArtifactError(f"{MANIFEST_FILE}: must have at most {MAX_MANIFEST} bytes, got {len(content)}")
        try:
            values = parse_json(content)
        except InvalidJson as error:
            raise ArtifactError(f"{MANIFEST_FILE}: {error}") from error
        if not isinstance(values, dict):
            raise ArtifactError(f"{MANIFEST_FILE}: must be a JSON object")
        version, spec_sha256 = values.pop("version", None), values.pop("spec_sha256", None)
        if type(version) is not int or version != cls.VERSION:
            raise ArtifactError(f"{MANIFEST_FILE}: version must be {cls.VERSION}, got {version!r:.200}")
        counts = values.get("accounting")
        if isinstance(counts, dict):
            values["accounting"] = dict.fromkeys(_FLOPS, 0) | counts
        manifest = decode(cls, {**{name: [] for name in _MAY_BE_EMPTY}, **values}, MANIFEST_FILE)
        if spec_sha256 != manifest.spec_sha256:
            raise ArtifactError(f"{MANIFEST_FILE}: spec_sha256 must be the digest of spec, got {spec_sha256!r:.200}")
        if manifest.to_json() != content:
            raise ArtifactError(
                f"{MANIFEST_FILE}: must be in canonical form (sorted keys, indent 2, a newline at the end)"
            )
        return manifest


def read_manifest(directory: str | Path) -> Manifest:
    """Reads and checks the manifest of an artifact's folder; the files themselves are not looked at.

    Raises:
        ArtifactError: there is none, or it is not valid.
    """
    try:
        with open_file(Path(directory) / MANIFEST_FILE) as file:
            content = file.read(MAX_MANIFEST + 1)
    except OSError as error:
        raise ArtifactError(
            f"{directory}: must be an artifact's folder, got none: {MANIFEST_FILE}: {error.strerror or error}"
        ) from error
    try:
        return Manifest.from_json(content)
    except ArtifactError as error:
        raise ArtifactError(f"{directory}: {error}") from error


def verify(directory: str | Path, *, may_lack: Container[str] = ()) -> Manifest:
    """Checks that every file of an artifact is there with the size and the SHA-256 that its manifest says.

    Files that the manifest does not name are ignored.

    Args:
        directory: the artifact.
        may_lack: names of files that may be missing.

    Raises:
        ArtifactError: names the first file that is missing or differs.
    """
    manifest = read_manifest(directory)
    for file in manifest.files:
        try:
            _verify_file(Path(directory) / file.path, file)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and file.path in may_lack:
                continue
            raise ArtifactError(f"{file.path}: cannot be read ({error.strerror or error})") from error
    return manifest


def read_verified(directory: str | Path, manifest: Manifest, path: str, limit: int) -> bytes:
    """A file of an artifact, with the SHA-256 that its manifest says.

    Raises:
        ArtifactError: it is missing, is not named, has more than `limit` bytes, or differs.
    """
    expected = next((file for file in manifest.files if file.path == path), None)
    if expected is None:
        raise ArtifactError(f"{path}: must be named in {MANIFEST_FILE}")
    try:
        content = read_limited(Path(directory) / path, limit)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror or error})") from error
    if (sha256 := hashlib.sha256(content).hexdigest()) != expected.sha256:
        raise ArtifactError(f"{path}: must have the SHA-256 {expected.sha256}, got {sha256}")
    return content


def measure(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file, read in pieces."""
    with open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _verify_file(path: Path, expected: ArtifactFile) -> None:
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected.size_bytes:  # seen without reading it
            raise ArtifactError(f"{expected.path}: must have {expected.size_bytes} bytes, got {size}")
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != expected.sha256:
        raise ArtifactError(f"{expected.path}: must have the SHA-256 {expected.sha256}, got {sha256}")


def _dump(value: Any, **form: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, default=_jsonable, **form)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{MANIFEST_FILE}: values must be JSON, got {error}") from error


def _jsonable(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        return vars(value)
    raise TypeError(f"{value!r:.200}")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if (
        len(path) > _MAX_PATH
        or not path.isprintable()
        or any(part in ("", ".", "..") for part in parts)
        or set(path) & set("\\:")
    ):
        raise ArtifactError(
            f"path must be a relative path of at most {_MAX_PATH} printable characters with '/' between its parts, "
            f"without '.', '..', '\\' and ':', got {path!r:.200}"
        )


def _check_collisions(paths: list[str]) -> None:
    """No two paths may meet on a disk that ignores case, also not as file and folder, nor meet the manifest itself."""
    taken = {MANIFEST_FILE: MANIFEST_FILE}
    folders: dict[str, str] = {}
    for path in paths:
        key = unicodedata.normalize("NFKC", path).casefold()
        parents = ["/".join(key.split("/")[:depth]) for depth in range(1, key.count("/") + 1)]
        other = taken.get(key) or folders.get(key) or next((taken[p] for p in parents if p in taken), None)
        if other is not None:
            raise ArtifactError(f"paths must differ on all disks, got {other!r:.200} and {path!r:.200}")
        taken[key] = path
        folders.update(dict.fromkeys(parents, path))


def _check_counts(owner: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(owner, name) < 2**63:
            raise ArtifactError(f"{name} must be a whole number from 0 to 2^63 - 1, got {getattr(owner, name)}")


def _check_fractions(owner: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(owner, name) <= 1:
            raise ArtifactError(f"{name} must be a number from 0 to 1, got {getattr(owner, name)}")


def _check_sha256(value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise ArtifactError(f"sha256 must be 64 lower-case hex digits, got {value!r:.200}")
