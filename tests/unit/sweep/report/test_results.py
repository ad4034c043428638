"""Cells, lines, differences from dense, crossings: what a report says, before it is written."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sweep.report.made_up import GATE, failed, grid, point, small_model, sweep

from mvprune.client.sweep_models import PointState, SweepPoint
from mvprune.spec.gate import Gate
from mvprune.sweep.report.crossings import Crossing, crossings
from mvprune.sweep.report.quantities import DIFFERENCE, Quality, compact, stat, values_of
from mvprune.sweep.report.results import MAX_LINES, Panel, Results, arrange, value_text


def panel_of(points: list[SweepPoint], **changes: Any) -> Panel:
    (panel,) = arrange(sweep(points, **changes), points).panels
    return panel


def losses(curves: dict[str, dict[float, list[float]]]) -> list[SweepPoint]:
    """Points of methods: density to the differences from dense of its seeds."""
    cells = [(m, d, s, x) for m, line in curves.items() for d, seeds in line.items() for s, x in enumerate(seeds)]
    return [point(n, method, density, seed, delta=x) for n, (method, density, seed, x) in enumerate(cells, start=1)]


def crossing_of(curves: dict[str, dict[float, list[float]]]) -> Crossing:
    (found,) = crossings(panel_of(losses(curves)))
    return found


def test_points_that_differ_only_in_the_seed_are_one_cell() -> None:
    points = grid(["movement"], [0.1], [0, 1, 2])
    (cell,) = panel_of(points).cells
    values = [one.metrics["eval/accuracy"] for one in points]
    found = cell.stat("eval/accuracy")
    assert found is not None
    assert (found.mean, found.deviation, found.n) == (statistics.fmean(values), statistics.stdev(values), 3)
    assert cell.stat("unknown") is None


def test_only_points_with_a_result_count() -> None:
    running = point(3, seed=2, state=PointState.RUNNING, metrics={}, accounting=None)
    (cell,) = panel_of([*grid(["movement"], [0.1]), running, failed(4)]).cells
    assert [one.number for one in cell.points] == [1, 2]


def test_a_value_that_is_not_finite_is_not_known() -> None:
    found = values_of(point(1, metrics={"eval/accuracy": math.nan, "dense/accuracy": 0.8}))
    assert "eval/accuracy" not in found
    assert found["dense/accuracy"] == 0.8


def test_a_small_dense_model_is_compared_with_the_dense_model_of_the_others() -> None:
    panel = panel_of([*grid(["movement"], [0.1, 0.2]), small_model(9, quality=0.79)])
    (small,) = panel.small
    assert panel.dense is not None
    assert (panel.dense.mean, panel.dense.n) == (pytest.approx(0.821), 2)
    assert panel.dense_model == "bert-tiny"
    difference = small.stat(DIFFERENCE)
    assert difference is not None
    assert difference.mean == pytest.approx(0.79 - 0.821)
    assert [line.name for line in panel.lines] == ["movement"]


def test_a_baseline_that_points_share_counts_once() -> None:
    dense = panel_of(grid()).dense
    assert dense is not None
    assert dense.n == 2


def test_a_line_is_named_by_all_that_differs_but_the_density() -> None:
    points = [
        point(n, density=density, cell={"density": density, "learning_rate": rate, "teacher": "train"})
        for n, (density, rate) in enumerate([(0.1, 3e-5), (0.2, 3e-5), (0.1, 1e-4)], start=1)
    ]
    assert [line.name for line in panel_of(points).lines] == [
        "movement, learning_rate 3e-05",
        "movement, learning_rate 0.0001",
    ]


def test_at_most_five_lines_are_drawn_the_best_ones() -> None:
    curves = {f"m{index}": {0.1: [-0.01 * index], 0.2: [-0.005 * index]} for index in (3, 1, 6, 2, 5, 4, 7)}
    panel = panel_of(losses(curves))
    assert {line.name for line in panel.lines} == {"m1", "m2", "m3", "m4", "m5"}
    assert len(panel.lines) == MAX_LINES
    assert panel.hidden == ("m6", "m7")


def test_a_line_at_high_densities_only_is_no_better_for_that() -> None:
    hard = {f"m{index}": {0.02: [-0.2 - 0.01 * index]} for index in range(5)}
    easy = {"easy": {0.5: [-0.05]}, "easier": {0.5: [-0.001]}}
    assert "easy" in panel_of(losses(hard | easy)).hidden


def test_the_front_has_the_cells_that_none_is_smaller_and_better_than() -> None:
    points = losses({"movement": {0.02: [-0.05], 0.1: [-0.01]}, "random": {0.02: [-0.2], 0.1: [-0.06], 0.2: [-0.02]}})
    assert [cell.points[0].number for cell in panel_of(points).cells if cell.on_front] == [1, 2]


def test_of_a_loss_less_is_better() -> None:
    def perplexity(number: int, density: float, value: float) -> SweepPoint:
        metrics = {"eval/perplexity": value, "dense/perplexity": 8.0, "delta/perplexity": value - 8.0}
        return point(number, density=density, metrics=metrics, primary_metric="perplexity", task="mlm")

    panel = panel_of([perplexity(1, 0.1, 9.0), perplexity(2, 0.2, 12.0)])
    assert panel.quality.is_loss
    assert [cell.on_front for cell in panel.cells] == [True, False]
    (first, _) = panel.cells
    assert panel.quality.text(first.stat("eval/perplexity")) == "9.00"
    assert panel.quality.difference(first.stat(DIFFERENCE)) == "+1.00"


def test_differences_are_in_points() -> None:
    quality = Quality.of("accuracy")
    assert quality.difference(stat([-0.012, -0.01])) == "-1.10 ± 0.14"
    assert quality.text(stat([0.8725])) == "87.25"
    assert quality.difference_label == "accuracy − dense, points"


def test_gates_are_compared_with_the_mean_or_with_the_worst_seed() -> None:
    points = losses({"movement": {0.1: [-0.002, -0.015]}})
    assert panel_of(points).cells[0].misses == ()
    assert panel_of(points, seeds="worst").cells[0].misses == ((GATE, -0.015),)
    gate = Gate("encoder_nonzero", max=1000)
    assert panel_of(points, gates=(gate,)).cells[0].misses == ((gate, 43_000),)


def test_tasks_are_apart() -> None:
    other = [replace(one, number=one.number + 100, task="mrpc") for one in grid(["movement"])]
    points = [*grid(["movement"]), *other]
    results = arrange(sweep(points), points)
    assert [panel.task for panel in results.panels] == ["sst2", "mrpc"]
    assert results.varied["task"] == ("sst2", "mrpc")


def test_only_what_differs_is_varied() -> None:
    results = arrange(sweep(grid()), grid())
    assert list(results.varied) == ["method", "density", "seed"]
    assert results.compared == ["method", "density"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "default"), (True, "yes"), (3e-5, "3e-05"), (["a", "b"], "a, b"), (0.1, "0.1")]
)
def test_values_read_as_users_write_them(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(("number", "text"), [(8_051_234, "8.05 M"), (950, "950"), (2.5e12, "2.5 T"), (1e9, "1 G")])
def test_large_numbers_are_short(number: float, text: str) -> None:
    assert compact(number) == text


def test_a_crossing_is_interpolated_in_the_logarithm_of_the_density() -> None:
    found = crossing_of({"a": {0.01: [0.0], 1e-4: [0.0]}, "b": {0.01: [0.01], 1e-4: [-0.01]}})
    assert found.density == pytest.approx(1e-3)
    assert (found.below, found.above) == ("a", "b")
    assert found.low is None
    assert "cannot be said with one seed" in found.text


def test_the_uncertainty_of_a_crossing_is_that_of_a_simulation() -> None:
    """Against the spread of the crossing over many draws of the seeds."""
    source, sigma, count = random.Random(0), 0.002, 4
    truth = {"a": {0.02: -0.03, 0.1: -0.02}, "b": {0.02: -0.05, 0.1: -0.01}}
    places = []
    for _ in range(4000):
        gaps = []
        for density in (0.02, 0.1):
            mean = {
                name: statistics.fmean(source.gauss(truth[name][density], sigma) for _ in range(count))
                for name in truth
            }
            gaps.append(mean["a"] - mean["b"])
        places.append(math.log(0.02) + math.log(5) * gaps[0] / (gaps[0] - gaps[1]))
    unit = [x * sigma / statistics.stdev([-1.5, -0.5, 0.5, 1.5]) for x in (-1.5, -0.5, 0.5, 1.5)]
    curves = {name: {d: [value + x for x in unit] for d, value in line.items()} for name, line in truth.items()}
    found = crossing_of(curves)
    assert found.density is not None
    assert found.low is not None
    assert found.high is not None
    assert math.log(found.density) == pytest.approx(statistics.fmean(places), abs=0.01)
    assert math.log(found.high / found.density) == pytest.approx(statistics.stdev(places), rel=0.05)
    assert math.log(found.density / found.low) == pytest.approx(math.log(found.high / found.density))
    assert found.is_clear is True


def test_a_crossing_within_the_noise_says_so() -> None:
    found = crossing_of(
        {"a": {0.02: [-0.05, -0.01], 0.1: [-0.03, 0.0]}, "b": {0.02: [-0.04, -0.03], 0.1: [-0.02, 0.0]}}
    )
    assert found.is_clear is False
    assert "no more than the standard error" in found.text


def test_lines_that_do_not_cross_say_which_is_better() -> None:
    found = crossing_of(
        {"a": {0.02: [-0.05, -0.051], 0.1: [-0.02, -0.021]}, "b": {0.02: [-0.04] * 2, 0.1: [-0.01] * 2}}
    )
    assert found.density is None
    assert "b is better than a at all densities from 2.0 % to 10.0 %; by more" in found.text
    assert "at 2 of 2 densities" in found.text


def test_lines_without_a_common_range_are_not_compared() -> None:
    found = crossing_of({"a": {0.02: [-0.05], 0.05: [-0.02]}, "b": {0.1: [-0.04], 0.2: [-0.01]}})
    assert "share no range" in found.text


def test_lines_that_meet_at_a_measured_density_cross_there() -> None:
    curves = {
        "a": {0.02: [-0.02] * 2, 0.1: [-0.01] * 2, 0.5: [0.0] * 2},
        "b": {0.02: [-0.04] * 2, 0.1: [-0.01] * 2, 0.5: [0.01] * 2},
    }
    assert crossing_of(curves).density == pytest.approx(0.1)


def test_of_a_loss_the_line_below_is_better() -> None:
    def perplexity(number: int, method: str, density: float, value: float) -> SweepPoint:
        metrics = {"eval/perplexity": value, "dense/perplexity": 8.0, "delta/perplexity": value - 8.0}
        return point(number, method, density, metrics=metrics, primary_metric="perplexity", task="mlm")

    points = [
        perplexity(1, "a", 0.1, 12.0),
        perplexity(2, "a", 0.5, 9.0),
        perplexity(3, "b", 0.1, 14.0),
        perplexity(4, "b", 0.5, 8.5),
    ]
    (found,) = crossings(panel_of(points))
    assert (found.below, found.above) == ("a", "b")


_DENSITIES = (0.01, 0.02, 0.05, 0.1, 0.5)
_LINE = st.dictionaries(
    st.sampled_from(_DENSITIES),
    st.lists(st.integers(-9, 9).map(lambda value: value / 100), min_size=1, max_size=2),
    min_size=1,
)


@given(_LINE, _LINE)
def test_at_every_crossing_the_better_line_changes(
    one: dict[float, list[float]], other: dict[float, list[float]]
) -> None:
    found = crossings(panel_of(losses({"a": one, "b": other})))
    places = [crossing.density for crossing in found if crossing.density is not None]
    low, high = max(min(one), min(other)), min(max(one), max(other))
    assert places == sorted(places)
    assert all(low <= place * 1.000001 and place <= high * 1.000001 for place in places)
    for before, after in pairwise([crossing for crossing in found if crossing.density is not None]):
        assert before.above == after.below
    for crossing in found:
        if crossing.low is not None and crossing.high is not None and crossing.density is not None:
            assert crossing.low <= crossing.density <= crossing.high


def test_the_number_of_points_that_have_ended() -> None:
    points = [point(1), failed(2), point(3, state=PointState.PENDING), point(4, state=PointState.RUNNING)]
    results: Results = arrange(sweep(points), points)
    assert results.ended == 2
