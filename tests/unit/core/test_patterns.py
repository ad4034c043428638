"""N:M patterns: which weights stay, in training and in the artifact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.masks import NoCopies, new_masks, update
from tests.unit.core.ranking import RANKING
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import Recorder
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import load
from mvprune.data.loading import ClassificationData
from mvprune.spec.kept import kept_count
from mvprune.spec.patterns import NOfM
from mvprune_core import METHODS, SMP, CompressionError, Magnitude, Movement, Reason, Stopped, Training, compress
from mvprune_core.pruning.patterns import InPattern, _among_equals, largest_of_groups
from mvprune_core.pruning.selection import materialize
from mvprune_core.training.masking import Masks

QUICK = Training(max_steps=12, batch_size=32, learning_rate=5e-3)
TOTAL = 10
TWO_OF_FOUR = NOfM(2, 4)


def by_hand(values: Tensor, pattern: NOfM) -> Tensor:
    """Group by group, with a sort; the values must differ."""
    keep = np.zeros(values.shape, dtype=bool)
    for row in range(values.shape[0]):
        for start in range(0, values.shape[1], pattern.group):
            group = values[row, start : start + pattern.group].tolist()
            for place in sorted(range(pattern.group), key=group.__getitem__)[-pattern.kept :]:
                keep[row, start + place] = True
    return torch.from_numpy(keep)


def masks_of(model: nn.Module, method: Any, pattern: NOfM, step: int = TOTAL) -> Masks:
    masks = new_masks(model, method, density=pattern.density, total_steps=TOTAL, seed=0, selector=InPattern(pattern))
    generator = torch.Generator().manual_seed(5)
    for scores in masks.scores:
        scores.data += torch.randn(scores.shape, generator=generator)
    update(masks, step)
    return masks


def blocks(*shapes: tuple[int, int]) -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(columns, rows) for rows, columns in shapes])})


@given(st.integers(2, 12), st.data(), st.integers(1, 6), st.integers(1, 5))
def test_the_largest_of_each_group_are_those_of_a_sort(group: int, draw: Any, rows: int, groups: int) -> None:
    kept = draw.draw(st.integers(1, group - 1))
    generator = torch.Generator().manual_seed(group * 100 + rows)
    values = torch.randperm(rows * groups * group, generator=generator).float().view(rows, -1)
    pattern = NOfM(kept, group)
    assert torch.equal(largest_of_groups(values, pattern, 0), by_hand(values, pattern))


def test_equal_values_keep_random_places_but_exactly_n() -> None:
    values = torch.zeros(50, 40)
    values[:, ::8] = 1.0
    keep = largest_of_groups(values, TWO_OF_FOUR, 3)
    assert bool((keep.view(-1, 4).sum(1) == 2).all())
    assert bool(keep[:, ::8].all()), "larger values come first"
    columns = keep[:, 4:8].sum(0)
    assert bool((columns > 0).all()), "no column of equal values stays whole or goes whole"
    assert bool((columns < 50).all())
    assert torch.equal(keep, largest_of_groups(values, TWO_OF_FOUR, 3))
    assert not torch.equal(keep, largest_of_groups(values, TWO_OF_FOUR, 4))


@pytest.mark.parametrize("selection", ["local", "global"])
@pytest.mark.parametrize("name", RANKING)
def test_every_group_has_n_weights_at_the_end(name: str, selection: str) -> None:
    method: Any = METHODS[name]
    options = {"selection": selection} if "selection" in method.__dataclass_fields__ else {}
    masks = masks_of(blocks((6, 8), (4, 12)), method(**options), TWO_OF_FOUR)
    for matrix in masks.matrices:
        assert bool((matrix.kept.view(-1, 4).sum(1) == 2).all())
    assert masks.current_density == 0.5


def test_movement_keeps_the_largest_scores_of_each_group() -> None:
    masks = masks_of(blocks((6, 8), (4, 12)), Movement(), TWO_OF_FOUR)
    for index, matrix in enumerate(masks.matrices):
        ranked = materialize(masks.method.importance(matrix, index, masks._step))  # type: ignore[attr-defined]
        assert torch.equal(matrix.kept, by_hand(ranked, TWO_OF_FOUR))


@pytest.mark.parametrize("selection", ["local", "global"])
def test_on_the_way_weights_leave_one_by_one_and_no_group_falls_below_n(selection: Any) -> None:
    model = blocks((6, 8), (4, 12))
    size = 6 * 8 + 4 * 12
    for step in range(TOTAL + 1):
        masks = masks_of(blocks((6, 8), (4, 12)), Magnitude(selection=selection), TWO_OF_FOUR, step)
        density = masks.current_density
        kept = [matrix.kept for matrix in masks.matrices]
        expected = [kept_count(48, density)] * 2 if selection == "local" else [kept_count(size, density)]
        counts = [int(mask.sum()) for mask in kept]
        assert (counts if selection == "local" else [sum(counts)]) == expected
        assert all(bool((mask.view(-1, 4).sum(1) >= 2).all()) for mask in kept)
        if density < 1:
            # by hand: what is in the pattern, then the largest of the others
            weights = [layer.weight.detach().abs() for layer in model["layer"]]  # type: ignore[union-attr]
            patterned = [by_hand(weight, TWO_OF_FOUR) for weight in weights]
            lifted = [weight + 100 * mask for weight, mask in zip(weights, patterned, strict=True)]
            together = [torch.cat([value.reshape(-1) for value in lifted])] if selection == "global" else lifted
            cuts = [
                value.reshape(-1).sort(descending=True).values[n - 1]
                for value, n in zip(together, expected, strict=True)
            ]
            for value, mask, cut in zip(lifted, kept, cuts * (2 // len(cuts)), strict=True):
                assert torch.equal(mask, value >= cut)


def test_rows_of_conv1d_are_its_columns() -> None:
    torch.manual_seed(0)
    layer = Conv1D(6, 8)  # 8 inputs, 6 outputs: the weight is (8, 6)
    model = nn.ModuleDict({"h": nn.ModuleList([layer])})
    weight = layer.weight.detach().abs().clone()
    masks = masks_of(model, Magnitude(), TWO_OF_FOUR)
    assert torch.equal(masks.matrices[0].kept, by_hand(weight.t().contiguous(), TWO_OF_FOUR).t())


@pytest.mark.slow
def test_the_artifact_has_the_pattern_and_its_manifest_says_so(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    result = compress(model_folder, data, method="movement", pattern="2:4", training=QUICK, dense_baseline=False)
    assert result.accounting.density == result.accounting.target_density == 0.5
    manifest = result.save(tmp_path / "out")
    assert manifest.spec["pattern"] == "2:4"
    state = load(tmp_path / "out").state_dict()
    for name in result.pruned:
        assert bool(((state[name] != 0).view(-1, 4).sum(1) <= 2).all())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["movement", "magnitude"])  # of all methods: test_checkpoints.py
def test_an_interrupted_run_ends_as_one_that_is_not(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    options: dict[str, Any] = {"method": name, "pattern": "1:4", "training": QUICK, "dense_baseline": False}
    whole = compress(model_folder, data, **options)
    for step in (4, 9):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", step), **options)
    assert same(whole, compress(model_folder, data, checkpoint=tmp_path / "c", **options))


@pytest.mark.slow
def test_another_pattern_is_another_run(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "training": QUICK,
        "dense_baseline": False,
        "checkpoint": tmp_path / "c",
    }
    with pytest.raises(Stopped):
        compress(model_folder, data, density=0.5, callback=StopIn("pruning", 10), **options)
    with pytest.warns(RuntimeWarning, match="is of another run"):
        compress(model_folder, data, pattern="2:4", **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pattern": "4:2"}, "pattern must be 1x4, or N:M with 1 <= N < M <= 64, got '4:2'"),
        ({"pattern": "2:4", "density": 0.3}, "density must be 0.5 with the pattern 2:4, got 0.3; give 0.5"),
        (
            {"pattern": "2:4", "method": "l0"},
            "pattern must be unset or 1x4 with the method l0, got '2:4'; take one of .*movement",
        ),
        (
            {"pattern": "2:4", "method": SMP()},
            "pattern must be unset or 1x4 with the method smp, got '2:4'; take one of .*movement",
        ),
        ({}, "density must be above 0, at most 1, got 0 or none"),
    ],
)
def test_what_does_not_go_together(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        compress(model_folder, data, training=QUICK, **options)


@pytest.mark.slow
def test_a_run_without_a_density_says_that_it_is_that_of_the_pattern(
    model_folder: Path, data: ClassificationData
) -> None:
    note = "the density is 0.5, that of the pattern 2:4"
    result = compress(model_folder, data, method="magnitude", pattern="2:4", training=QUICK, dense_baseline=False)
    assert note in result.info.notes
    assert (result.info.spec["target_density"], result.info.spec["pattern"]) == (0.5, "2:4")


def test_groups_that_do_not_fill_a_row_are_refused_before_training(
    save: Callable[..., Path], model_folder: Path, data: ClassificationData
) -> None:
    recorder = Recorder()
    with pytest.raises(
        CompressionError,
        match=r"pattern must be N:M with an M that divides the rows of every pruned matrix, got 1:3 for "
        r"bert\.encoder\.layer\.0\.attention\.self\.query with rows of 32 weights; take another pattern, or exclude",
    ) as raised:
        compress(model_folder, data, method="magnitude", pattern="1:3", training=QUICK, callback=recorder)
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE
    assert recorder.phases == ["loading"]


def test_torch_packs_two_of_four(model_folder: Path, data: ClassificationData) -> None:
    """As docs/models.md says; only a GPU of compute capability 8.0 or later computes with it."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("torch packs semi-structured weights only on GPUs of compute capability 8.0 or later")
    from torch.sparse import to_sparse_semi_structured

    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(128, 128, generator=generator)
    weight = (weight * largest_of_groups(weight.abs(), TWO_OF_FOUR, 0)).half().cuda()
    x = torch.randn(64, 128, generator=generator).half().cuda()
    packed = to_sparse_semi_structured(weight)
    torch.testing.assert_close(nn.functional.linear(x, packed), nn.functional.linear(x, weight), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("selection", ["local", "global"])
def test_a_step_waits_for_no_device(selection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where nothing has a value that could be waited for."""
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    model = blocks((6, 8), (4, 12)).to("meta")
    with NoCopies():
        masks = masks_of(model, Movement(selection=selection), TWO_OF_FOUR, 5)
        masks.update(TOTAL)
    assert masks.current_density == 0.5


def test_as_on_a_device_equal_values_leave_exactly_n() -> None:
    """Devices do not look for ties first; without ties both ways agree."""
    values = torch.randn(6, 16, generator=torch.Generator().manual_seed(0)).view(-1, 4)
    assert torch.equal(_among_equals(values, 2, 0), by_hand(values, TWO_OF_FOUR))
    assert bool((_among_equals(torch.zeros(9, 4), 2, 0).sum(1) == 2).all())


def test_patterns_leave_excluded_layers_dense(model_folder: Path, data: ClassificationData) -> None:
    result = compress(
        model_folder,
        data,
        method="magnitude",
        pattern="2:4",
        exclude=["*.0.*"],
        training=replace(QUICK, max_steps=6),
        dense_baseline=False,
    )
    assert {name.partition("attention")[0] for name in result.pruned if "attention" in name} == {
        "bert.encoder.layer.1."
    }
