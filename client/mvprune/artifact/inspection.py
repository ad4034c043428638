"""The content of an artifact, from its manifest and the header of its weights: no weights are unpacked, and nothing
beyond the standard library is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import OF_BASE, SPARSE_LAYOUTS, Header, open_header
from mvprune.artifact.kinds import place
from mvprune.artifact.manifest import MANIFEST_FILE, Manifest, read_manifest, verify
from mvprune.artifact.parts import PARTS, StoredTensor, stored_tensors
from mvprune.sources.model_config import WEIGHTS_FILE

_FP32 = 4  # bytes


@dataclass(frozen=True)
class Matrix:
    """A pruned weight.

    Attributes:
        block, kind: where it is and what it does there, see `mvprune.artifact.kinds.place`.
        kept: non-zero weights.
        layout, values: how it is stored, in the words of the format; values is BASE if they are the base model's.
        bytes: of the weights file.
    """

    name: str
    block: str
    kind: str
    shape: tuple[int, ...]
    kept: int
    density: float
    layout: str
    values: str
    bytes: int


@dataclass(frozen=True)
class Kind:
    """All pruned weights of one kind together."""

    kind: str
    matrices: int
    weights: int
    kept: int
    density: float
    bytes: int


@dataclass(frozen=True)
class Part:
    """Encoder, embeddings or the rest.

    Attributes:
        parameters: numbers of the model, zeros and those of the base model among them.
        base_parameters: those whose values only the base model has.
        dense_bytes: all of them in fp32.
        bytes: of the weights file.
    """

    part: str
    tensors: int
    parameters: int
    base_parameters: int
    dense_bytes: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """An artifact.

    Attributes:
        digest: the artifact's identity, SHA-256 of its manifest.
        verified_files: how many files have the digest that the manifest says; None: they were not there to look at.
        delta: whether loading it needs the base model.
        header_bytes: of the weights file, for the names and shapes.
    """

    digest: str
    verified_files: int | None
    delta: bool
    manifest: Manifest
    matrices: tuple[Matrix, ...]
    kinds: tuple[Kind, ...]
    parts: tuple[Part, ...]
    header_bytes: int


def inspect(directory: str | Path, *, outline: bool = False) -> Inspection:
    """Verifies an artifact and tells what it holds.

    Args:
        directory: the artifact.
        outline: of its files only the manifest and the header of the weights are there, so no digest is checked.

    Raises:
        ArtifactError: a file is missing or differs from the manifest, or the two do not tell the same.
    """
    directory = Path(directory)
    manifest = read_manifest(directory) if outline else verify(directory)
    header = open_header(directory / WEIGHTS_FILE)
    tensors = {tensor.name: tensor for tensor in stored_tensors(header)}
    matrices = tuple(_matrices(manifest, header, tensors))
    parts = tuple(_part(part, [tensor for tensor in tensors.values() if tensor.part == part]) for part in PARTS)
    found = Inspection(
        digest=manifest.digest,
        verified_files=None if outline else len(manifest.files),
        delta=bool(header.base),
        manifest=manifest,
        matrices=matrices,
        kinds=kinds_of(matrices),
        parts=parts,
        header_bytes=header.data_start,
    )
    _check_bytes(found)
    return found


def kinds_of(matrices: tuple[Matrix, ...]) -> tuple[Kind, ...]:
    """The kinds, in the order in which they first come."""
    found: dict[str, list[Matrix]] = {}
    for matrix in matrices:
        found.setdefault(matrix.kind, []).append(matrix)
    kinds = []
    for kind, members in found.items():
        weights, kept = sum(math.prod(one.shape) for one in members), sum(one.kept for one in members)
        size = sum(one.bytes for one in members)
        kinds.append(Kind(kind, len(members), weights, kept, kept / weights if weights else 0.0, size))
    return tuple(kinds)


def _matrices(manifest: Manifest, header: Header, tensors: dict[str, StoredTensor]) -> list[Matrix]:
    matrices = []
    for layer in manifest.layers:
        tensor = tensors.get(header.aliases.get(layer.name, layer.name))
        if tensor is None or tensor.layout not in SPARSE_LAYOUTS:
            raise ArtifactError(
                f"{MANIFEST_FILE}: layers must be stored sparse in {WEIGHTS_FILE}, got {layer.name!r:.300}"
            )
        if (tensor.shape, tensor.stored) != (layer.shape, layer.nonzero):
            raise ArtifactError(
                f"{MANIFEST_FILE}: the layer {layer.name!r:.300} must have {tensor.stored} non-zeros of "
                f"{list(tensor.shape)} as in {WEIGHTS_FILE}, got {layer.nonzero} of {list(layer.shape)}"
            )
        block, kind = place(layer.name)
        density = layer.nonzero / max(math.prod(layer.shape), 1)
        stored = tensor.layout, tensor.values, tensor.bytes
        matrices.append(Matrix(layer.name, block, kind, layer.shape, layer.nonzero, density, *stored))
    return matrices


def _part(part: str, tensors: list[StoredTensor]) -> Part:
    parameters = sum(math.prod(tensor.shape) for tensor in tensors)
    from_base = sum(math.prod(tensor.shape) for tensor in tensors if tensor.layout == "base")
    from_base += sum(tensor.stored for tensor in tensors if tensor.values == OF_BASE)
    size = sum(tensor.bytes for tensor in tensors)
    return Part(part, len(tensors), parameters, from_base, _FP32 * parameters, size)


def _check_bytes(found: Inspection) -> None:
    """The manifest's bytes must be those of the file."""
    counts, by_part = found.manifest.accounting, {part.part: part.bytes for part in found.parts}
    total = found.header_bytes + sum(by_part.values())
    kept = sum(matrix.kept for matrix in found.matrices)
    for name, told, seen in (
        ("sparse_bytes", counts.sparse_bytes, total),
        ("encoder_bytes", counts.encoder_bytes, by_part["encoder"]),
        ("embedding_bytes", counts.embedding_bytes, by_part["embeddings"]),
        ("kept_weights", counts.kept_weights, kept),
    ):
        if told != seen:
            raise ArtifactError(f"{MANIFEST_FILE}: accounting: {name} must be {seen} as in {WEIGHTS_FILE}, got {told}")
