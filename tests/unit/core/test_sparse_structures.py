"""Single weights inside the heads and units that stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.structure_runs import QUICK, TOTAL, by_layer, importance, structure_masks
from tests.unit.core.training_runs import Recorder
from torch import Tensor, nn

from mvprune.artifact.structures import Structures
from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Magnitude, Movement, Reason, compress
from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.selectors import Ranking
from mvprune_core.pruning.sparse_structures import SparseStructures
from mvprune_core.pruning.structures import WholeStructures
from mvprune_core.training.masking import Masks

OPTIONS: dict[str, Any] = {
    "structure": "heads_and_units",
    "structure_density": 0.5,
    "density": 0.1,
} | QUICK


def masks_of(
    model: nn.Module, density: float, structure_density: float, method: Any = None, step: int = TOTAL
) -> tuple[Masks, list[Structures]]:
    def selector_of(model: nn.Module, structures: list[Structures]) -> SparseStructures:
        return SparseStructures(WholeStructures(model, structures), structures, density, structure_density)

    return structure_masks(model, selector_of, density, method, step)


@pytest.mark.parametrize("method", [Movement(selection="global"), Magnitude(selection="global")], ids=lambda m: m.name)
@pytest.mark.parametrize(("density", "structure_density"), [(0.1, 0.5), (0.3, 0.4), (0.2, 1.0)])
def test_the_most_important_weights_of_what_stays_are_kept(
    known_model: nn.Module, method: Any, density: float, structure_density: float
) -> None:
    """By hand: the weights of the best structures, in the order of their importance, after one for each structure."""
    masks, structures = masks_of(known_model, density, structure_density, method)
    values, kept = importance(masks), by_layer(masks)
    inside = kept_wholes(known_model, masks, structures, structure_density)
    total = sum(mask.numel() for mask in kept.values())
    forced = []
    for each in structures:
        weight, whole = values[each.output], inside[each.output]
        for first in range(0, weight.shape[1], each.size):
            columns = weight[:, first : first + each.size]
            if whole[:, first : first + each.size].any():
                row, column = divmod(int(columns.argmax()), each.size)
                forced.append((each.output, row, first + column))
    others = sorted(
        (
            (float(values[name][row, column]), name, int(row), int(column))
            for name, whole in inside.items()
            for row, column in whole.nonzero()
        ),
        reverse=True,
    )
    chosen = set(forced)
    for _, name, row, column in others:
        if len(chosen) == int(density * total + 1e-9):
            break
        chosen.add((name, row, column))
    assert chosen == {(name, int(row), int(column)) for name, mask in kept.items() for row, column in mask.nonzero()}
    assert masks.current_density == density


def kept_wholes(
    model: nn.Module, masks: Masks, structures: list[Structures], structure_density: float
) -> dict[str, Tensor]:
    """Which weights the selection of whole structures keeps, by layer."""
    with masks.finalized():  # where the model is plain
        selector = WholeStructures(model, structures)
    matrices = masks.matrices
    for matrix in matrices:
        matrix.mask = torch.empty_like(matrix.weight, dtype=torch.bool, requires_grad=False)
    found = importance(masks)

    def of_matrix(matrix: Matrix, *_: int) -> Tensor:
        return found[matrix.name.removesuffix(".weight")]

    ranking = Ranking(of_matrix, lambda sums, size: sums / size, of_matrix, "global", 0)
    selector.select(matrices, ranking, selector.nearest(structure_density))
    return {matrix.name.removesuffix(".weight"): matrix.mask for matrix in matrices}


def test_both_densities_fall_together(known_model: nn.Module) -> None:
    masks, structures = masks_of(known_model, 0.1, 0.5, step=0)
    whole = WholeStructures(known_model, structures)
    total = sum(matrix.weight.numel() for matrix in masks.matrices)
    shares = []
    for step in range(TOTAL + 1):
        masks.update(step)
        v = masks.method.schedule.density_at(step, TOTAL, 0.1)
        kept = by_layer(masks)
        expected = int(min(v, whole.nearest(v ** (0.30103))) * total + 1e-9)
        assert sum(int(mask.sum()) for mask in kept.values()) == pytest.approx(expected, abs=1)
        shares.append(share_of_structures(kept, structures))
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(whole.nearest(0.5))


def share_of_structures(kept: dict[str, Tensor], structures: list[Structures]) -> float:
    """The fraction of the weights that belong to structures with a kept output column."""
    left = total = 0
    for each in structures:
        some = kept[each.output].any(0).view(-1, each.size).any(1)
        weights = sum(kept[layer].numel() for layer in each.layers) // len(some)
        left, total = left + int(some.sum()) * weights, total + len(some) * weights
    return left / total


@pytest.mark.parametrize("name", first_fast(["magnitude", "soft_movement"]))  # all of them: test_structures.py
def test_a_run_gives_a_smaller_and_sparse_model(
    four_heads: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    result = compress(four_heads, data, method=name, **OPTIONS)
    counts = result.accounting
    assert counts.prunable_weights == 2 * (4 * 32 * 32 + 2 * 32 * 64)
    assert counts.density == pytest.approx(0.1, rel=0.01)
    state = result.model.state_dict()
    stored = sum(state[weight].numel() for weight in result.pruned)
    nonzero = sum(int((state[weight] != 0).sum()) for weight in result.pruned)
    assert stored == pytest.approx(0.5 * counts.prunable_weights, rel=0.01)
    assert nonzero == counts.kept_weights
    assert counts.total_nonzero == sum(int(p.count_nonzero()) for p in result.model.parameters())
    assert counts.dense_flops > 2 * counts.sparse_flops > 0
    manifest = result.save(tmp_path / "out")
    assert manifest.spec["structure_density"] == 0.5
    assert manifest.accounting.dense_bytes == 4 * counts.total_parameters
    files = sum(file.stat().st_size for file in (tmp_path / "out").iterdir() if file.suffix == ".safetensors")
    assert files < manifest.accounting.dense_bytes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"structure": None}, "structure_density must be unset without structure, got 0.5"),
        ({"structure_density": 1.5}, "structure_density must be above 0, at most 1, got 1.5"),
        (
            {"density": 0.5},
            "structure_density must be above the density, 0.5, got 0.5; leave it out to keep all weights",
        ),
    ],
)
def test_what_does_not_go_together(
    four_heads: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        compress(four_heads, data, method="movement", **OPTIONS | options)


def test_a_density_that_structures_cannot_reach_is_refused(four_heads: Path, data: ClassificationData) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=r"structure_density must be .* got 0\.15; take 0\.25") as found:
        compress(
            four_heads,
            data,
            method="movement",
            callback=recorder,
            **OPTIONS | {"structure": "heads", "structure_density": 0.15},
        )
    assert found.value.reason is Reason.DENSITY_NOT_REACHED
    assert recorder.phases == ["loading"]


@pytest.mark.parametrize(
    ("structure", "structure_density", "structures"),
    first_fast([("heads_and_units", 0.5, 98), ("units", 0.5, 64), ("heads", 0.5, 4), ("layers", 0.6, 1)]),
)
def test_every_structure_that_stays_needs_a_weight(
    four_heads: Path, data: ClassificationData, structure: str, structure_density: float, structures: int
) -> None:
    """By hand: the most structures are one head in each of two blocks, and units for the other weights."""
    weights = {"heads": 8192, "units": 8192}.get(structure, 16384)
    recorder = Recorder()
    given = {"structure": structure, "structure_density": structure_density, "allow_density_miss": True}
    lower = {"density": (structures - 0.5) / weights}
    with pytest.raises(CompressionError, match=rf"^density must keep a weight .* {structures} struct") as found:
        compress(four_heads, data, method="magnitude", callback=recorder, **OPTIONS | given | lower)
    assert found.value.reason is Reason.DENSITY_NOT_REACHED
    assert recorder.phases == ["loading"]
    least = float(re.findall(r"take at least ([\d.e-]+),", str(found.value))[0])
    result = compress(four_heads, data, method="magnitude", **OPTIONS | given | {"density": least})
    nonzero = sum(int(result.model.state_dict()[name].count_nonzero()) for name in result.pruned)
    assert structures <= nonzero <= 1.2 * structures
    assert result.accounting.kept_weights == nonzero
