from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from mvprune.runtime import kernel
from mvprune.spec.kept import kept_count
from mvprune_core.pruning import selection
from mvprune_core.pruning.elementwise import in_parallel
from mvprune_core.pruning.selection import WeightedScores, materialize, select_top, select_top_on_device

Way = Callable[[Sequence[Tensor], int, Sequence[Tensor], int], None]


def _on_device(importances: Sequence[Tensor], count: int, masks: Sequence[Tensor], seed: int) -> None:
    """The way of other devices; it runs on the CPU too."""
    together = torch.cat([importance.reshape(-1) for importance in importances])
    keep = select_top_on_device(together[None], count, seed)[0]
    for mask, part in zip(masks, keep.split([mask.numel() for mask in masks]), strict=True):
        mask.copy_(part.view(mask.shape))


def _by_numpy(importances: Sequence[Tensor], count: int, masks: Sequence[Tensor], seed: int) -> None:
    """The way of machines without the native kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "load", lambda: "there is none")
        select_top(importances, count, masks, seed)


WAYS = [select_top, _by_numpy, _on_device]


def _run(way: Way, importances: Sequence[Tensor], count: int, seed: int = 0) -> Tensor:
    masks = [torch.empty_like(importance, dtype=torch.bool) for importance in importances]
    way(importances, count, masks, seed)
    return torch.cat([mask.reshape(-1) for mask in masks])


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=80)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 13), st.integers(1, 17)), min_size=1, max_size=4),
    share=st.floats(0, 1),
    values=st.integers(1, 40),
    scale=st.sampled_from([1.0, 1e-38, 1e38]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**32),
)
def test_selects_what_a_full_sort_selects(
    way: Way, shapes: list[tuple[int, int]], share: float, values: int, scale: float, dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # few values: many ties, of both signs
    if dtype == torch.float16:
        scale = 1.0
    importances = [
        ((torch.randint(values, shape, generator=generator) - values / 2) * scale).to(dtype) for shape in shapes
    ]
    together = torch.cat([importance.reshape(-1) for importance in importances])
    count = round(share * together.numel())
    kept = together[_run(way, importances, count, seed)]
    assert torch.equal(kept.sort(descending=True).values, together.sort(descending=True).values[:count])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("density", [0.999, 0.5, 0.03, 0.0001])
def test_large_matrices_of_other_scales_are_ranked_together(way: Way, density: float) -> None:
    generator = torch.Generator().manual_seed(1)
    importances = [torch.randn(300, 401, generator=generator) * scale for scale in (1.0, 50.0, 0.01)]
    together = torch.cat([importance.reshape(-1) for importance in importances])
    count = kept_count(together.numel(), density)
    expected = torch.zeros_like(together, dtype=torch.bool)
    expected[together.argsort(descending=True)[:count]] = True
    assert torch.equal(_run(way, importances, count), expected)


@pytest.mark.parametrize("shapes", [[(300, 401)], [(3, 5)], [(300, 401), (7, 2), (400, 200)]])
@pytest.mark.parametrize("density", [0.5, 0.03])
def test_sums_are_selected_as_if_they_were_written_down(shapes: list[tuple[int, int]], density: float) -> None:
    generator = torch.Generator().manual_seed(2)
    sums = [
        WeightedScores(
            torch.randn(shape, generator=generator), torch.randn(shape, generator=generator), torch.tensor(1.7)
        )
        for shape in shapes
    ]
    whole = [materialize(one) for one in sums]
    torch.testing.assert_close(whole[0], sums[0].scores + 1.7 * sums[0].weight.abs())
    masks = [torch.empty(shape, dtype=torch.bool) for shape in shapes]
    count = kept_count(sum(mask.numel() for mask in masks), density)
    select_top(sums, count, masks, 0)
    assert torch.equal(torch.cat([mask.reshape(-1) for mask in masks]), _run(select_top, whole, count))


@pytest.mark.slow
def test_more_than_two_to_the_24_entries() -> None:
    size = 2**24 + 12_345
    importance = torch.arange(size, dtype=torch.int32).mul_(7919).remainder_(size).float()  # float32 rounds: ties
    count = kept_count(size, 0.03)
    kept = importance[_run(select_top, [importance], count)]
    assert kept.numel() == count
    assert torch.equal(kept.sort().values, importance.sort().values[-count:])


@pytest.mark.parametrize("pattern", ["periodic", "sorted", "one value but for a few"])
def test_values_that_mislead_a_sample_are_still_selected_exactly(pattern: str) -> None:
    size = 400_000
    values = {
        "periodic": torch.arange(size).remainder(24).float(),
        "sorted": torch.arange(size).float(),
        "one value but for a few": torch.zeros(size).index_fill_(0, torch.arange(1, 4000, 2), 1.0),
    }[pattern]
    for count in (3, 1000, 2500, size // 2, size - 1):
        kept = values[_run(select_top, [values], count)]
        assert torch.equal(kept.sort(descending=True).values, values.sort(descending=True).values[:count])


@pytest.mark.parametrize("shape", [(768, 768), (3072, 768), (768, 3072), (384, 1536)])
def test_only_values_near_the_threshold_are_ranked_where_columns_differ(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked: list[int] = []
    largest = selection._largest

    def spy(values: selection.Values, count: int, seed: int) -> NDArray[np.bool_]:
        ranked.append(len(values))
        return largest(values, count, seed)

    monkeypatch.setattr(selection, "_largest", spy)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator) * torch.randn(shape[1], generator=generator).exp()
    for density in (0.03, 0.1, 0.5):
        select_top([values], kept_count(values.numel(), density), [torch.empty(shape, dtype=torch.bool)], seed=0)
    assert max(ranked) < 0.05 * values.numel(), f"{ranked} of {values.numel()}"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("rows", "columns"), [(64, 48), (768, 768)])
def test_ties_are_broken_at_random_but_by_the_seed(way: Way, rows: int, columns: int) -> None:
    count = rows * columns // 10
    masks = [_run(way, [torch.zeros(rows, columns)], count, seed).view(rows, columns) for seed in (3, 3, 4)]
    assert [int(mask.sum()) for mask in masks] == [count] * 3
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert masks[0].sum(dim=1).max() < 0.4 * columns, "whole rows are kept"
    assert masks[0].sum(dim=0).max() < 0.4 * rows, "whole columns are kept"


@pytest.mark.parametrize("way", WAYS)
def test_ties_are_shared_out_among_matrices(way: Way) -> None:
    first, second = _run(way, [torch.zeros(64, 48)] * 2, 600).chunk(2)
    assert 220 < int(first.sum()) < 380
    assert int(first.sum() + second.sum()) == 600


def test_rows_are_selected_each_by_itself_on_a_device() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5, 1000, generator=generator) * torch.tensor([[1.0], [5.0], [0.1], [1.0], [0.0]])
    keep = select_top_on_device(rows, 30, seed=1)
    assert keep.sum(1).tolist() == [30] * 5
    for row, mask in zip(rows[:4], keep, strict=False):
        assert set(mask.nonzero().flatten().tolist()) == set(row.argsort(descending=True)[:30].tolist())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [0, 12])
def test_nothing_and_everything(way: Way, count: int) -> None:
    assert _run(way, [torch.randn(3, 4)], count).sum() == count


def test_values_that_are_not_numbers_do_not_break_selection() -> None:
    _run(select_top, [torch.full((5, 5), torch.nan)], 3)


@given(size=st.integers(1, 10**8), thousandths=st.integers(1, 1000))
@example(size=34_575_723, thousandths=213)  # a thousandth below a whole number
@example(size=30, thousandths=100)
def test_kept_count_is_the_exact_floor(size: int, thousandths: int) -> None:
    assert kept_count(size, thousandths / 1000) == int(Fraction(thousandths, 1000) * size)


@pytest.mark.parametrize("threads", [1, 2])
def test_each_item_is_seen_once_and_no_error_is_lost(threads: int) -> None:
    def keep(index: int, item: str) -> None:
        seen.append((index, item))
        if item == "bad":
            raise ValueError(item)

    torch.set_num_threads(threads)
    seen: list[tuple[int, str]] = []
    in_parallel(keep, "abc")
    assert sorted(seen) == [(0, "a"), (1, "b"), (2, "c")]
    with pytest.raises(ValueError, match="bad"):
        in_parallel(keep, ["good", "bad"])
