"""Artifacts side by side, from their manifests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mvprune.artifact.card import method_name
from mvprune.artifact.kinds import place
from mvprune.artifact.manifest import LayerCount, Manifest


@dataclass(frozen=True)
class Compared:
    """One of the artifacts.

    Attributes:
        name: as it was given.
        method: name of the method, "" if the spec has none.
        metrics, differences: of the manifest; by how much each is above the first artifact's, where both have it and
            their tasks are the same.
        bytes: of all files.
        dense_flops, sparse_flops: of the accounting; 0: not counted.
        densities: kind of matrix → fraction of its weights that is kept.
    """

    name: str
    digest: str
    method: str
    target_density: float
    density: float
    kept_weights: int
    metrics: Mapping[str, float]
    differences: Mapping[str, float]
    bytes: int
    dense_bytes: int
    sparse_bytes: int
    encoder_bytes: int
    embedding_bytes: int
    dense_flops: int
    sparse_flops: int
    densities: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """Artifacts side by side, the first being what the others are compared with.

    Attributes:
        options: what differs in what was asked for: dotted name → value of each artifact, None where it has none.
        notes: which artifacts have other data than the first.
    """

    artifacts: tuple[Compared, ...]
    options: Mapping[str, tuple[Any, ...]]
    notes: tuple[str, ...]


def compare(manifests: Sequence[tuple[str, Manifest]]) -> Comparison:
    """Compares artifacts, each given as a name for people and its manifest."""
    first = manifests[0][1]
    return Comparison(
        tuple(_compared(name, manifest, first) for name, manifest in manifests),
        _differing([flat(manifest.spec) for _, manifest in manifests]),
        tuple(filter(None, (_note(name, manifest, *manifests[0]) for name, manifest in manifests[1:]))),
    )


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as one, their keys joined by dots."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            found |= flat(inner, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = inner
    return found


def densities(layers: Sequence[LayerCount]) -> dict[str, float]:
    """Kind of matrix → fraction of its weights that is kept, in the order in which the kinds first come."""
    weights: dict[str, int] = {}
    kept: dict[str, int] = {}
    for layer in layers:
        _, kind = place(layer.name)
        weights[kind] = weights.get(kind, 0) + math.prod(layer.shape)
        kept[kind] = kept.get(kind, 0) + layer.nonzero
    return {kind: kept[kind] / weights[kind] if weights[kind] else 0.0 for kind in weights}


def _compared(name: str, manifest: Manifest, first: Manifest) -> Compared:
    counts, others = manifest.accounting, first.metrics if manifest.dataset.name == first.dataset.name else {}
    return Compared(
        name=name,
        digest=manifest.digest,
        method=method_name(manifest),
        target_density=counts.target_density,
        density=counts.density,
        kept_weights=counts.kept_weights,
        metrics=manifest.metrics,
        differences={name: value - others[name] for name, value in manifest.metrics.items() if name in others},
        bytes=manifest.total_bytes,
        dense_bytes=counts.dense_bytes,
        sparse_bytes=counts.sparse_bytes,
        encoder_bytes=counts.encoder_bytes,
        embedding_bytes=counts.embedding_bytes,
        dense_flops=counts.dense_flops,
        sparse_flops=counts.sparse_flops,
        densities=densities(manifest.layers),
    )


def _note(name: str, manifest: Manifest, first_name: str, first: Manifest) -> str:
    """What keeps the metrics of two artifacts from being compared; "" for nothing."""
    if manifest.dataset.name != first.dataset.name:
        return f"{name} is for {manifest.dataset.name}, {first_name} for {first.dataset.name}: metrics are not compared"
    if manifest.dataset.fingerprint != first.dataset.fingerprint:
        return f"{name} was trained or evaluated on other data than {first_name}: metrics may differ because of it"
    return ""


def _differing(specs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    names = dict.fromkeys(name for spec in specs for name in spec)
    rows = {name: tuple(spec.get(name) for spec in specs) for name in names}
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}
