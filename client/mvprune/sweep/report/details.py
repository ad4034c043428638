"""Details of the artifacts of a few points: density by layer, and which weights are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from mvprune.artifact.errors import ArtifactError, needs
from mvprune.artifact.kinds import place
from mvprune.artifact.manifest import LayerCount, read_manifest
from mvprune.client.sweep_models import PointState, SweepPoint
from mvprune.sources.model_config import WEIGHTS_FILE
from mvprune.sweep.report.quantities import Quality

MAX_DETAILED = 5  # points


@dataclass(frozen=True)
class PointDetails:
    """Details of the artifact of a point.

    Attributes:
        artifact: SHA-256 of its manifest, the last part of the artifact's name.
        layers: the pruned weights.
        kept: name of a pruned weight to its mask, the bits of a number: bit i is set where element i, in row-major
            order, is kept. Empty where only the manifest was there.
    """

    artifact: str
    layers: tuple[LayerCount, ...]
    kept: Mapping[str, int] = field(default_factory=dict, repr=False)

    def blocks(self) -> dict[str, float]:
        """Block of the model to the fraction of its prunable weights that is kept, in the model's order."""
        weights: dict[str, int] = {}
        kept: dict[str, int] = {}
        for layer in self.layers:
            block, _ = place(layer.name)
            weights[block] = weights.get(block, 0) + math.prod(layer.shape)
            kept[block] = kept.get(block, 0) + layer.nonzero
        return {block: kept[block] / weights[block] if weights[block] else 0.0 for block in weights}


@dataclass(frozen=True)
class Overlap:
    """How many kept weights two points have in common.

    Attributes:
        first, second: numbers of the points.
        jaccard: weights that both keep, of those that at least one keeps; None where their matrices differ.
        chance: the same for masks drawn at random with as many kept weights in each matrix.
    """

    first: int
    second: int
    jaccard: float | None
    chance: float | None


def points_to_detail(points: Sequence[SweepPoint], recommended: int | None = None) -> list[int]:
    """The numbers of the points whose artifacts show how methods differ: one a method, at most five methods.

    They are of the task and the model with the most results, at the density that the most methods have, of several the
    lowest; a method without it is shown at its nearest density. Of several seeds and settings, the first is shown. Of
    more than five methods, those with the best metric are shown.

    Args:
        recommended: the number of a point that is shown in any case, with the others of its task, model and density.
    """
    done = [
        point for point in points if point.state == PointState.SUCCEEDED and point.artifact and point.target_density < 1
    ]
    if not done:
        return []
    own = next((point for point in done if point.number == recommended), None)
    kinds = [(point.task, point.model) for point in done]
    common = (own.task, own.model) if own else max(dict.fromkeys(kinds), key=kinds.count)
    done = [point for point, kind in zip(done, kinds, strict=True) if kind == common]
    methods: dict[float, set[str]] = {}
    for point in done:
        methods.setdefault(point.target_density, set()).add(point.method)
    density = own.target_density if own else max(methods, key=lambda one: (len(methods[one]), -one))

    def distance(point: SweepPoint) -> tuple[bool, float, int, int]:
        return point is not own, abs(math.log(point.target_density / density)), point.seed, point.number

    chosen = [
        min((point for point in done if point.method == method), key=distance)
        for method in dict.fromkeys(point.method for point in done)
    ]
    ranked = sorted(chosen, key=lambda point: (point is not own, _rank(point)))
    return sorted(point.number for point in ranked[:MAX_DETAILED])


def details_of(artifact_directory: str | Path) -> PointDetails:
    """Reads the details from an artifact's folder. Its manifest is enough for the density by layer; the masks need the
    weights file too.

    Raises:
        ArtifactError: there is no valid manifest, or the weights file is not valid.
        MissingExtra: there is a weights file, and reading it needs ``mvprune[runtime]``.
    """
    directory = Path(artifact_directory)
    manifest = read_manifest(directory)
    weights = directory / WEIGHTS_FILE
    # The matrices of a model without some heads and units have other rows and columns: their masks say nothing.
    has_masks = weights.exists() and not manifest.spec.get("structure")
    return PointDetails(manifest.digest, manifest.layers, masks(weights, manifest.layers) if has_masks else {})


def overlaps(details: Mapping[int, PointDetails]) -> list[Overlap]:
    """Of all pairs of points whose masks are known, by their numbers."""
    known = {number: one for number, one in sorted(details.items()) if one.kept}
    return [_overlap(first, known[first], second, known[second]) for first, second in combinations(known, 2)]


def masks(weights: Path, layers: Sequence[LayerCount]) -> dict[str, int]:
    """The masks of these matrices in a weights file, as `PointDetails.kept`.

    Raises:
        ArtifactError: a matrix is not there, or has other non-zeros.
    """
    with needs("the overlap of masks", "runtime"):
        import numpy as np  # only here: a report without masks needs no numpy

        from mvprune.artifact.header import open_header
        from mvprune.artifact.weights import stream_positions
    stored = {}
    for name, positions in stream_positions(weights):
        bits = np.zeros(int(positions[-1]) + 1 if positions.size else 0, np.bool_)
        bits[positions] = True
        stored[name] = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
    header, kept = open_header(weights), dict[str, int]()
    for layer in layers:
        name = header.aliases.get(layer.name, layer.name)
        # Not the bits of the mask: a block that is kept may have values that are rounded to 0.
        nonzero = header.packed[name].nonzero if name in stored else None
        if nonzero != layer.nonzero:
            found = "not stored sparse" if nonzero is None else f"{nonzero} non-zeros"
            raise ArtifactError(f"{WEIGHTS_FILE}: {layer.name!r:.300} must have {layer.nonzero} non-zeros, got {found}")
        kept[layer.name] = stored[name]
    return kept


def _overlap(first: int, one: PointDetails, second: int, other: PointDetails) -> Overlap:
    sizes = [{layer.name: math.prod(layer.shape) for layer in details.layers} for details in (one, other)]
    if one.kept.keys() != other.kept.keys() or sizes[0] != sizes[1]:
        return Overlap(first, second, None, None)
    both = either = 0
    by_chance = total = 0.0
    for name, mask in one.kept.items():
        mine, theirs = mask.bit_count(), other.kept[name].bit_count()
        both += (mask & other.kept[name]).bit_count()
        either += (mask | other.kept[name]).bit_count()
        by_chance += mine * theirs / max(sizes[0][name], 1)
        total += mine + theirs
    if not either:
        return Overlap(first, second, None, None)
    return Overlap(first, second, both / either, by_chance / (total - by_chance))


def _rank(point: SweepPoint) -> tuple[float, int]:
    """The best metric first."""
    value = point.metrics.get(f"eval/{point.primary_metric}")
    if value is None or not math.isfinite(value):
        return math.inf, point.number
    return (value if Quality.of(point.primary_metric).is_loss else -value), point.number
