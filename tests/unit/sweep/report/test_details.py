"""Which points are shown in detail, what their artifacts say, and how much of their masks is the same."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.sparse_artifacts import OUTPUT, QUERY, make_artifact, tensors
from tests.unit.sweep.report.made_up import failed, grid, point, small_model

from mvprune.artifact import WEIGHTS_FILE, ArtifactError, LayerCount, MissingExtra, write_weights
from mvprune.client.sweep_models import SweepPoint
from mvprune.sweep.report import PointDetails, details_of, points_to_detail
from mvprune.sweep.report.details import masks, overlaps


def details(artifact: str, **kept: set[int]) -> PointDetails:
    """Masks of matrices of 100 elements."""
    layers = tuple(LayerCount(name, (10, 10), len(places) / 100, len(places)) for name, places in kept.items())
    return PointDetails(artifact, layers, {name: sum(1 << place for place in places) for name, places in kept.items()})


def test_one_point_a_method_at_the_density_that_most_methods_have() -> None:
    points = [point(1, "a", 0.02), point(2, "a", 0.1), point(3, "b", 0.1), point(4, "c", 0.1), point(5, "c", 0.5)]
    assert points_to_detail(points) == [2, 3, 4]


def test_of_several_common_densities_the_lowest_and_of_several_seeds_the_first() -> None:
    points = grid(["a", "b"], [0.5, 0.02], [1, 0])
    assert [(p.target_density, p.seed) for p in _chosen(points)] == [(0.02, 0), (0.02, 0)]


def test_a_method_without_the_density_is_shown_at_the_nearest() -> None:
    points = [point(1, "a", 0.1), point(2, "b", 0.1), point(3, "c", 0.01), point(4, "c", 0.2)]
    assert points_to_detail(points) == [1, 2, 4]


def test_of_more_than_five_methods_the_best() -> None:
    points = [point(n, f"m{n}", 0.1, delta=-0.01 * n) for n in range(7, 0, -1)]
    assert points_to_detail(points) == [1, 2, 3, 4, 5]


def test_the_recommended_point_is_shown_with_the_others_at_its_density() -> None:
    points = [point(1, "a", 0.02), point(2, "a", 0.1, seed=1), point(3, "b", 0.02), point(4, "a", 0.1)]
    assert points_to_detail(points) == [1, 3]
    assert points_to_detail(points, 2) == [2, 3]
    many = [point(n, f"m{n}", 0.1, delta=-0.01 * n) for n in range(7, 0, -1)]
    assert points_to_detail(many, 7) == [1, 2, 3, 4, 7], "although others are better"
    assert points_to_detail([*many, point(8, "a", 0.1, model="other")], 8) == [8]
    assert points_to_detail(points, 9) == [1, 3], "it has no artifact"


def test_only_artifacts_of_one_task_and_model_are_shown() -> None:
    points = [point(1, "a"), point(2, "b"), point(3, "c", model="other"), small_model(4), failed(5)]
    assert points_to_detail(points) == [1, 2]
    assert points_to_detail([failed(1)]) == []


def test_density_and_masks_are_those_of_the_artifact(tmp_path: Path) -> None:
    manifest = make_artifact(tmp_path / "out")
    found = details_of(tmp_path / "out")
    assert found.artifact == manifest.digest
    assert found.layers == manifest.layers
    for name in (QUERY, OUTPUT):
        places = np.flatnonzero(tensors()[name])
        assert found.kept[name] == sum(1 << int(place) for place in places)
    assert found.blocks() == {"bert.encoder.layer.0": 6 / 48}


def test_a_manifest_is_enough_for_the_density(tmp_path: Path) -> None:
    make_artifact(tmp_path / "out")
    (tmp_path / "out" / WEIGHTS_FILE).unlink()
    found = details_of(tmp_path / "out")
    assert found.kept == {}
    assert found.blocks() == {"bert.encoder.layer.0": 6 / 48}


def test_masks_of_a_model_without_some_heads_are_not_compared(tmp_path: Path) -> None:
    make_artifact(tmp_path / "out", spec={"task": "sst2", "magnitude": {}, "structure": "HEADS"})
    assert details_of(tmp_path / "out").kept == {}


def test_blocks_of_four_may_have_zeros(tmp_path: Path) -> None:
    """A value of a kept block may be rounded to 0; its mask has the whole block."""
    weight = np.zeros((4, 8), np.float32)
    weight.reshape(-1)[[0, 1, 2, 3, 4, 5, 7]] = 1
    write_weights(tmp_path / WEIGHTS_FILE, {QUERY: weight}, (QUERY,))
    assert masks(tmp_path / WEIGHTS_FILE, [LayerCount(QUERY, (4, 8), 7 / 32, 7)]) == {QUERY: 0xFF}
    with pytest.raises(ArtifactError, match="must have 8 non-zeros, got 7"):
        masks(tmp_path / WEIGHTS_FILE, [LayerCount(QUERY, (4, 8), 8 / 32, 8)])


def test_weights_that_the_manifest_contradicts_are_refused(tmp_path: Path) -> None:
    make_artifact(tmp_path / "out")
    changed = tensors()
    changed[QUERY][0, 0] = 1
    write_weights(tmp_path / "out" / WEIGHTS_FILE, changed, (QUERY, OUTPUT))
    with pytest.raises(ArtifactError, match="must have 4 non-zeros, got 5"):
        details_of(tmp_path / "out")
    write_weights(tmp_path / "out" / WEIGHTS_FILE, changed, (OUTPUT,))
    with pytest.raises(ArtifactError, match="must have 4 non-zeros, got not stored sparse"):
        details_of(tmp_path / "out")


def test_masks_need_the_extra_that_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_artifact(tmp_path / "out")
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match="overlap of masks"):
        details_of(tmp_path / "out")


def test_the_overlap_is_the_jaccard_index() -> None:
    one, other = details("a", q={1, 2, 3}, k={5}), details("b", q={2, 3, 4, 9}, k={5})
    (found,) = overlaps({1: one, 2: other})
    assert (found.first, found.second) == (1, 2)
    assert found.jaccard == pytest.approx(3 / 6)
    both = 3 * 4 / 100 + 1 / 100
    assert found.chance == pytest.approx(both / (9 - both))


def test_random_masks_overlap_as_chance_says() -> None:
    source = random.Random(0)
    size = 100_000
    masks = [{source.randrange(size) for _ in range(count)} for count in (20_000, 30_000)]
    found = [
        PointDetails(name, (LayerCount("q", (size,), len(mask) / size, len(mask)),), {"q": sum(1 << p for p in mask)})
        for name, mask in zip("ab", masks, strict=True)
    ]
    (one,) = overlaps(dict(enumerate(found)))
    assert one.chance == pytest.approx(one.jaccard, rel=0.02)


def test_masks_of_other_matrices_are_not_compared() -> None:
    one, other = details("a", q={1}), details("b", k={1})
    (found,) = overlaps({1: one, 2: other})
    assert found.jaccard is None
    larger = replace(one, layers=(LayerCount("q", (20, 20), 0.0025, 1),))
    (found,) = overlaps({1: one, 2: larger})
    assert found.jaccard is None


def test_points_without_masks_have_no_overlap() -> None:
    assert overlaps({1: details("a", q={1}), 2: PointDetails("b", ())}) == []


def _chosen(points: list[SweepPoint]) -> list[SweepPoint]:
    return [one for one in points if one.number in points_to_detail(points)]
