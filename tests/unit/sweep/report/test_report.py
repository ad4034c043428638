"""The four files of a sweep's report: their facts."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sweep.report.made_up import base_spec, failed, grid, point, sweep
from tests.unit.sweep.report.reports import DETAILS, Page, report, section

from mvprune.client.models import Failure
from mvprune.client.sweep_models import PointState, Recommendation, SweepPoint, SweepState
from mvprune.spec.gate import Gate
from mvprune.sweep.report import PointDetails, write


def test_the_recommendation_is_in_words_with_the_command(tmp_path: Path, points: list[SweepPoint]) -> None:
    files = report(tmp_path, points)
    for text in (Page(files["html"]).text, files["md"].replace("\\", "")):
        assert "soft_movement at density 0.1 loses 0.97 points of accuracy" in text
        assert "mvpctl sweep download quality DIR --recommended" in text
    found = json.loads(files["json"])["recommendation"]
    assert (found["point"], found["passed"]) == (16, True)
    assert found["command"] == "mvpctl sweep download quality DIR --recommended"


def test_a_closest_miss_is_called_so(tmp_path: Path, points: list[SweepPoint]) -> None:
    record = sweep(
        points, recommendation=Recommendation(False, 16, (15, 16), "method random: misses delta_accuracy>=-1")
    )
    files = report(tmp_path, points, record)
    assert "Closest miss: method random: misses delta_accuracy>=-1" in Page(files["html"]).text
    assert ">closest miss</span>" in files["html"]
    assert ">recommended</span>" not in files["html"]
    assert "<td>closest miss</td>" in files["html"]
    assert "mvpctl download quality-0016 DIR" in files["md"]
    assert "--recommended" not in files["html"]
    assert not any(one["recommended"] for one in json.loads(files["json"])["points"])


def untimed(points: list[SweepPoint]) -> list[SweepPoint]:
    """The points, as if no latency had been measured."""
    return [
        replace(one, metrics={name: value for name, value in one.metrics.items() if "latency" not in name})
        for one in points
    ]


def test_the_first_picture_is_loss_against_latency_with_the_rivals(tmp_path: Path, points: list[SweepPoint]) -> None:
    int8 = point(44, density=1.0, cell={"density": 1.0, "activations": "int8"}, delta=-0.001)
    files = report(tmp_path, [*points, int8])
    page, found = files["html"], json.loads(files["json"])
    first = page[page.index("<h2>Loss against latency</h2>") : page.index("Difference from dense</h2>")]
    assert first.count("<figure") == 1
    assert "difference from dense against measured CPU latency" in first
    assert 'class="gate" d="M0 ' in first
    (panel,) = found["tasks"]
    own = [one.metrics for one in points if one.model == "bert-tiny" and one.metrics]
    for name, rival in (("dense_latency_ms", "torch fp32"), ("dense_int8_latency_ms", "torch int8")):
        least = min(one[name] for one in own)
        assert panel[name] == least, "those of the small model are not the rivals"
        assert f">{rival}</text>" in first
        assert f"dense in {rival}: {least:.3g} ms, the least that was measured" in first
    assert len(re.findall(r'class="rival" d="M[\d.]+ 0V', first)) == 2
    assert len(re.findall(r'class="small" d="M[\d.]+ [\d.-]+m-4-4', first)) == 3, "two of them and the legend"
    assert "dense bert-tiny, int8 activations at density 100.0 %" in first
    assert "dense bert-tiny: 82.10 ± 0.14, n 2; 17.6 MB in fp32" in first
    assert "The front" not in page


def test_the_rivals_are_in_the_tables(tmp_path: Path, points: list[SweepPoint]) -> None:
    files = report(tmp_path, points)
    assert "| bytes in fp32 | torch fp32 | torch int8 |" in files["md"]
    assert re.search(r"\| 17.6 MB \| 11 ms \| 6 ms \|", files["md"])
    assert re.search(r"latency \| × int8 \|", files["md"])
    assert "<b>1.58×</b><span>as fast as the unpruned model in torch&#x27;s int8" in files["html"]
    first = next(csv.DictReader(io.StringIO(files["csv"])))
    for name in ("dense_latency_ms", "dense_int8_latency_ms", "int8_latency_ratio"):
        assert float(first[name]) == points[0].metrics[name]


def test_the_front_has_a_mark_for_each_method_bars_the_dense_line_and_the_gates(
    tmp_path: Path, points: list[SweepPoint]
) -> None:
    page = report(tmp_path, untimed(points))["html"]
    front = page[page.index("The front") : page.index("Difference from dense</h2>")]
    for index, method in enumerate(("movement", "soft_movement", "magnitude", "random")):
        assert f"<span>{method}</span>" in front
        assert len(re.findall(rf'class="m{index}" d="M[\d.]+ [\d.-]+m', front)) == 6  # five densities and the legend
        assert len(re.findall(rf'class="e{index}"', front)) == 5
    shapes = {re.search(rf'class="m{index}" d="M[\d.]+ [\d.-]+(m[^"]+)"', front)[1] for index in range(4)}  # type: ignore[index]
    assert len(shapes) == 4
    assert 'class="front" d="M' in front
    assert 'class="is-dense" d="M0 ' in front
    assert 'class="gate" d="M0 ' in front
    assert "dense bert-tiny: 82.10 ± 0.14, n 2; 17.6 MB in fp32" in front
    assert "gate delta_accuracy&gt;=-1" in front
    assert "dense models, density 100 %" in front


def test_lines_differ_in_their_dashes_and_marks_not_only_in_colour(tmp_path: Path, points: list[SweepPoint]) -> None:
    page = report(tmp_path, points)["html"]
    dashes = re.findall(r"svg \.s\d\{[^}]*stroke-dasharray:([^}]*)\}", page)
    assert len(dashes) == len(set(dashes)) == 5


@pytest.mark.parametrize("key", ["density", "nonzero", "bytes", "flops"])
def test_the_difference_has_a_plot_for_each_cost(tmp_path: Path, points: list[SweepPoint], key: str) -> None:
    page = report(tmp_path, points)["html"]
    found = section(page, key)
    assert found.count("<figure") == 1
    assert "difference from dense against" in found
    assert len(re.findall(r'class="m0" d="M[\d.]+ [\d.-]+m', found)) == 6
    assert "accuracy − dense, points" in found
    assert "aria-current=true>" in found
    assert set(re.findall(r'href="#by-(\w+)"', found)) == {"density", "nonzero", "bytes", "flops"}


def test_the_density_is_shown_without_a_link(tmp_path: Path, points: list[SweepPoint]) -> None:
    """The section that CSS shows by default is the last, so that those before it can hide it."""
    page = report(tmp_path, points)["html"]
    sections = re.findall(r'<section class="([^"]*)" id="by-(\w+)"', page)
    assert sections[-1] == ("by default", "density")
    assert [kind for kind, _ in sections[:-1]] == ["by"] * 3
    assert ".by:target~.by.default{display:none}" in page


def test_a_cost_that_no_point_states_says_how_to_get_it(tmp_path: Path) -> None:
    def without(one: SweepPoint) -> SweepPoint:
        counts = None if one.accounting is None else replace(one.accounting, sparse_flops=0)
        return replace(one, accounting=counts)

    page = report(tmp_path, [without(one) for one in untimed(grid())])["html"]
    assert "<svg" not in section(page, "latency")
    assert "The notes of a job say why it could not be measured." in section(page, "latency")
    assert "do not state them" in section(page, "flops")
    assert "<svg" in section(page, "bytes")


def test_results_that_are_far_worse_are_cut_off_and_named(tmp_path: Path) -> None:
    points = [*grid(["movement"], seeds=[0]), point(6, "random", 0.02, delta=-0.6)]
    found = section(report(tmp_path, points)["html"], "density")
    assert "Worse than the plot shows: random, 2.0 %: -60.00, n 1." in found


def test_more_than_five_lines_are_in_the_table_only(tmp_path: Path) -> None:
    points = [point(n, f"method_{n}", 0.1, delta=-0.01 * n) for n in range(1, 8)]
    files = report(tmp_path, points)
    assert "The 5 best lines are drawn" in files["html"]
    assert "In the table only: method_6, method_7." in files["html"]
    assert "<td>method_7</td>" in files["html"]


def test_where_methods_cross_is_said(tmp_path: Path, points: list[SweepPoint]) -> None:
    files = report(tmp_path, points)
    for text in (files["html"], files["md"].replace("\\", "")):
        assert re.search(r"soft_movement is better below [\d.]+ %, magnitude above; from [\d.]+ % to [\d.]+ %", text)
        assert "delta method" in text
    found = [one for one in json.loads(files["json"])["crossings"] if one["density"] is not None]
    assert {(one["below"], one["above"]) for one in found} >= {("soft_movement", "magnitude")}


def test_every_point_is_in_the_csv_with_every_value(tmp_path: Path, points: list[SweepPoint]) -> None:
    rows = list(csv.DictReader(io.StringIO(report(tmp_path, points)["csv"])))
    assert [int(row["point"]) for row in rows] == [one.number for one in points]
    first, one = rows[0], points[0]
    assert float(first["eval/accuracy"]) == one.metrics["eval/accuracy"]
    assert float(first["difference"]) == one.metrics["delta/accuracy"]
    assert (first["method"], float(first["density"]), first["seed"]) == ("movement", 0.02, "0")
    assert one.accounting is not None
    counts = vars(one.accounting) | {"reached_density": one.accounting.density}
    assert all(float(first[name]) == value for name, value in counts.items() if name != "density")
    assert len(set(first)) == report(tmp_path, points)["csv"].partition("\n")[0].count(",") + 1
    assert int(first["total_bytes"]) == one.total_bytes
    assert rows[-1]["failure_reason"] == "NAN_LOSS"
    assert [row["point"] for row in rows if row["recommended"] == "True"] == ["15", "16"]


def test_the_columns_of_the_csv_do_not_depend_on_the_order_of_the_points(
    tmp_path: Path, points: list[SweepPoint]
) -> None:
    assert report(tmp_path / "a", points)["csv"] == report(tmp_path / "b", points[::-1])["csv"]


def test_means_have_their_deviation_and_number(tmp_path: Path, points: list[SweepPoint]) -> None:
    files = report(tmp_path, points)
    cell = next(one for one in json.loads(files["json"])["cells"] if one["recommended"])
    found = cell["values"]["difference"]
    assert found["n"] == 2
    shown = f"{100 * found['mean']:+.2f} ± {100 * found['deviation']:.2f}"
    assert f'<td class="n">{shown}</td><td>recommended</td>' in files["html"]
    assert f"| {shown} | recommended |" in files["md"]


def test_layers_and_masks_are_shown_where_artifacts_were_given(tmp_path: Path, points: list[SweepPoint]) -> None:
    files = report(tmp_path / "with", points, details=DETAILS)
    for text in (Page(files["html"]).text, files["md"]):
        assert "movement, 2.0 % (point 1)" in text.replace("\\", "")
        assert "bert.encoder.layer.0" in text
    assert '<td class="n">60.0 %</td><td class="n">3.2 %</td>' in files["html"]
    found = json.loads(files["json"])
    assert found["overlaps"][0]["jaccard"] == pytest.approx(3 / 5)
    assert [one["point"] for one in found["details"]] == [1, 11]
    without = report(tmp_path / "without", points)
    assert "mvpctl sweep report fetches the artifact of the recommended point" in without["html"]
    assert json.loads(without["json"])["overlaps"] == []


def test_details_of_another_artifact_are_refused(tmp_path: Path, points: list[SweepPoint]) -> None:
    with pytest.raises(ValueError, match="must be of an artifact of a point of the sweep, got 'other'"):
        write(sweep(points), points, tmp_path, [PointDetails("other", ())])


def test_failures_are_counted_by_their_reason(tmp_path: Path) -> None:
    skipped = [point(n, state=PointState.SKIPPED, state_reason="BUDGET_USED", metrics={}) for n in (8, 9)]
    lost = point(10, state=PointState.FAILED, failure=Failure("NODE_LOST", "gone"), metrics={})
    files = report(tmp_path, [*grid(["movement"], [0.1]), failed(5), failed(6), lost, *skipped])
    for row in ("| FAILED | NAN\\_LOSS | 2 | 5, 6 | the loss became NaN at step 412 |", "| FAILED | NODE\\_LOST | 1 |"):
        assert row in files["md"]
    assert "| SKIPPED | BUDGET\\_USED | 2 | 8, 9 |  |" in files["md"]
    assert "<td>NAN_LOSS</td>" in files["html"]


def test_the_cost_says_what_was_shared_and_reused(tmp_path: Path, points: list[SweepPoint]) -> None:
    text = Page(report(tmp_path, points)["html"]).text
    for part in (
        "1h30m",
        "1h20m",
        "1.25",
        "2, 10m00s of the compute time",
        "1h06m: without it up to 1.83 times as much",
        "3 of 41",
    ):
        assert part in text


def test_only_what_differs_has_columns_and_the_rest_is_said_once(tmp_path: Path, points: list[SweepPoint]) -> None:
    record = sweep(points, base=base_spec(method_options={"pruning_start": 0.2}), strategy_options={"points": 5})
    text = report(tmp_path, points, record)["md"].replace("\\", "")
    assert "| method | movement, soft_movement, magnitude, random |" in text
    assert "| model | bert-tiny, minilm-2 |" in text
    assert "| method_options.pruning_start | 0.2 |" in text
    assert "| training.epochs | 3 |" in text
    assert "| strategy | grid (points 5) |" in text
    assert "| gates | delta_accuracy>=-1 |" in text


def test_notes_of_the_sweep_are_shown(tmp_path: Path, points: list[SweepPoint]) -> None:
    files = report(tmp_path, points, sweep(points, notes=("two points were there already",)))
    assert "<li>two points were there already</li>" in files["html"]
    assert "- two points were there already" in files["md"]


def test_a_sweep_that_goes_on_says_how_far_it_is(tmp_path: Path) -> None:
    points = [*grid(["movement"], [0.1]), *(point(n, state=PointState.PENDING, metrics={}) for n in (3, 4, 5))]
    time_ = datetime(2026, 2, 1, 8, 30, tzinfo=UTC)
    record = sweep(points, state=SweepState.ACTIVE, end_time=None, update_time=time_, recommendation=None)
    files = report(tmp_path, points, record)
    assert "Not finished, ACTIVE: as of 2026-02-01 08:30 UTC, 2 of 5 points have ended." in Page(files["html"]).text
    assert "as of 2026-02-01 08:30 UTC, 2 of 5 points have ended" in files["md"]


def test_a_sweep_without_a_result_has_a_report(tmp_path: Path) -> None:
    points = [point(1, state=PointState.PENDING, metrics={}, accounting=None)]
    files = report(tmp_path, points, sweep(points, state=SweepState.ACTIVE, recommendation=None))
    assert "No point has a result yet." in Page(files["html"]).text
    assert json.loads(files["json"])["cells"] == []


def test_of_a_loss_less_is_better(tmp_path: Path) -> None:
    points = [
        point(n, density=d, metrics={"eval/perplexity": v, "dense/perplexity": 8.0, "delta/perplexity": v - 8})
        for n, (d, v) in enumerate([(0.1, 10.5), (0.5, 8.25)], start=1)
    ]
    points = [replace(one, primary_metric="perplexity", task="mlm") for one in points]
    gate = Gate("delta/perplexity", max=0.5)
    files = report(tmp_path, points, sweep(points, gates=(gate,), recommendation=None))
    found = section(files["html"], "density")
    assert "(lower is better)" in found
    assert "perplexity − dense<" in found
    assert "+2.50" in found
    assert "points" not in found
    assert "misses delta_perplexity&lt;=0.5" in files["html"]
    assert "Of perplexity less is better" in files["md"]


def test_a_value_that_is_not_finite_is_null_in_json(tmp_path: Path) -> None:
    files = report(tmp_path, [point(1, metrics={"eval/accuracy": float("nan"), "dense/accuracy": 0.8})])
    assert json.loads(files["json"])["points"][0]["metrics"]["eval/accuracy"] is None


def test_a_second_report_replaces_the_first(tmp_path: Path, points: list[SweepPoint]) -> None:
    report(tmp_path, points)
    (tmp_path / "mine.txt").write_text("kept")
    again = report(tmp_path, points, sweep(points, display_name="again"))
    assert "<h1>again</h1>" in again["html"]
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"report.{ending}" for ending in ("html", "md", "csv", "json")),
        "mine.txt",
    }


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(
    tmp_path: Path, points: list[SweepPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = report(tmp_path, points)
    write_text = Path.write_text

    def full(path: Path, *args: Any, **options: Any) -> int:
        if path.name == "report.csv":
            raise OSError(28, "No space left on device")
        return write_text(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write(sweep(points, display_name="again"), points, tmp_path)
    assert {path.suffix[1:]: path.read_text() for path in tmp_path.iterdir()} == first


def test_the_same_results_give_the_same_report(tmp_path: Path, points: list[SweepPoint]) -> None:
    assert report(tmp_path / "a", points) == report(tmp_path / "b", points)
