"""The table and the matrices of a study, of points with made-up results, and where reports show them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sweep.report.made_up import base_spec, failed, point, sweep
from tests.unit.sweep.report.reports import Page, report

from mvprune.client.sweep_models import Axis, PointState, SweepPoint, SweepRecord
from mvprune.sweep.tickets.results import TicketResults, study_of, tickets_of
from mvprune.sweep.tickets.study import Run
from mvprune.sweep.tickets.text import matrices, standing, ticket_table

DOCS = Path(__file__).parents[4] / "docs"
AXES = (Axis("task", ("one", "two")), Axis("density", (0.9,)), Axis("seed", (0, 1)))
OPTIONS = {"controls": ("random", "random_mask"), "transfer_density": 0.9, "table_tasks": ("one",)}


def study(points: list[SweepPoint], **changes: Any) -> SweepRecord:
    base = base_spec(task="", target_density=0.0, method="locked_mask")
    given = {"axes": AXES, "strategy_options": OPTIONS, "gates": (), "objectives": ()} | changes
    return sweep(points, strategy="tickets", base=base, recommendation=None, **given)


def finished(number: int, run: Run, accuracy: float, f1: float) -> SweepPoint:
    metrics = {"eval/accuracy": accuracy, "eval/f1": f1, "above_constant": 0.1}
    own = {"cell": run.cell, "task": run.task, "metrics": metrics, "runtime": 2.0}
    method = "magnitude" if run.kind == "dense" else "locked_mask"
    return point(number, method=method, density=run.density, seed=run.seed, **own)


@pytest.fixture
def points() -> list[SweepPoint]:
    """Of task one, all but the random masks; of task two nothing."""
    found = list[SweepPoint]()
    for run in study_of(study([]).spec).runs():
        values = {
            "dense": (0.8 + run.seed / 100, 0.5),
            "ticket": (0.79 + run.seed / 50, 0.6),
            "random": (0.6, 0.1),
            "transfer": (0.75, 0.4),
        }
        if run.task == "one" and run.kind in values:
            found.append(finished(len(found) + 1, run, *values[run.kind]))
    return found


def results(points: list[SweepPoint], **changes: Any) -> TicketResults:
    found = tickets_of(study(points, **changes), points)
    assert found is not None
    return found


def test_the_table_and_both_matrices(points: list[SweepPoint]) -> None:
    found = results(points)
    table, (values, differences) = ticket_table(found), matrices(found)
    assert table.columns[3:] == ("dense", "ticket", "difference", "wins", "random mask", "random weights")
    assert table.rows == (
        ("one", "90.0 %", "accuracy", "80.5 ± 0.7 (2)", "80.0 ± 1.4 (2)", "-0.5 ± 6.4", "yes", "–", "60.0 ± 0.0 (2)"),
        ("one", "90.0 %", "f1", "50.0 ± 0.0 (2)", "60.0 ± 0.0 (2)", "+10.0 ± 0.0", "yes", "–", "10.0 ± 0.0 (2)"),
    )
    assert values.columns == ("mask of", "one (accuracy, f1)")
    assert values.rows == (
        ("one", "80.0 ± 1.4 (2) / 60.0 ± 0.0 (2)"),
        ("two", "75.0 ± 0.0 (2) / 40.0 ± 0.0 (2)"),
        ("random mask", "– / –"),
        ("dense", "80.5 ± 0.7 (2) / 50.0 ± 0.0 (2)"),
    )
    assert ("two", "-5.0 ± 1.4 (2) / -20.0 ± 0.0 (2)") in differences.rows
    assert [row[0] for row in differences.rows] == ["one", "two", "random mask"]
    assert found.winners == "one: the ticket of 90.0 % wins"
    assert found.missing == found.runs - len(points) > 0
    assert standing(found) == [f"{found.missing} of {found.runs} runs have no result."]


def test_a_perplexity_is_no_percentage_and_less_of_it_is_better(points: list[SweepPoint]) -> None:
    def as_perplexity(one: SweepPoint) -> SweepPoint:
        return replace(
            one, metrics={"eval/perplexity": 200 - 100 * one.metrics["eval/accuracy"]}, primary_metric="perplexity"
        )

    row = ticket_table(results([as_perplexity(one) for one in points])).rows[0]
    assert row[2:7] == ("perplexity", "119.5 ± 0.7 (2)", "120.0 ± 1.4 (2)", "+0.5 ± 6.4", "yes")


def test_with_one_seed_nobody_knows(points: list[SweepPoint]) -> None:
    found = results([one for one in points if one.seed == 0])
    assert ticket_table(found).rows[0][6] == "–"
    assert found.winners == "one: not known with fewer than two seeds"
    assert results([]).winners == ""


def test_a_round_that_failed_is_named_with_what_waits_for_it() -> None:
    dense, ticket = study_of(study([]).spec).rounds("one", 0, 0.9)
    lost = replace(failed(1), cell=dense.cell, task="one")
    words = r"one, seed 0, dense: point 1 is FAILED (NAN_LOSS); 3 runs after it are missing"  # ticket, random, transfer
    assert results([lost]).stopped == (words,)
    skipped = replace(failed(2), failure=None, state=PointState.SKIPPED, state_reason="INVALID_MODEL", cell=ticket.cell)
    there = finished(1, dense, 0.8, 0.5)
    [text] = results([there, replace(skipped, task="one")]).stopped
    assert text.startswith(
        "one, seed 0, ticket 90.0 %: point 2 is SKIPPED (INVALID_MODEL); 2 runs after it are missing"
    )


def test_other_sweeps_have_no_tickets(points: list[SweepPoint]) -> None:
    assert tickets_of(sweep(points), points) is None


def test_reports_show_the_tables_in_place_of_plots(points: list[SweepPoint], tmp_path: Path) -> None:
    files = report(tmp_path, points, study(points))
    page = Page(files["html"])
    assert "Winning tickets: one: the ticket of 90.0 % wins" in page.text
    for title in ("Tickets and controls", "Transfer at 90.0 % kept", "Transfer: differences from the same task"):
        assert title in page.text
        assert f"\n## {title}\n" in files["md"]
    assert "The front" not in page.text
    assert "Where methods cross" not in files["md"]
    assert "80.5 ± 0.7 (2)" in page.text
    row = "| one | 90.0 % | accuracy | 80.5 ± 0.7 (2) | 80.0 ± 1.4 (2) | -0.5 ± 6.4 | yes | – | 60.0 ± 0.0 (2) |"
    assert row in files["md"]
    header = files["csv"].splitlines()[0].split(",")
    assert {"run", "mask_task", "task", "density", "seed"} <= set(header)


def test_the_json_is_as_documented(points: list[SweepPoint], tmp_path: Path) -> None:
    found = json.loads(report(tmp_path, points, study(points))["json"])["tickets"]
    text = (DOCS / "json-output.md").read_text()
    (example,) = re.findall(r"^## Lottery tickets\n.*?```json\n(.*?)```", text, flags=re.MULTILINE | re.DOTALL)
    documented = json.loads(example)
    assert set(found) == set(documented)
    for name in ("rows", "transfer"):
        assert _fields(found[name][0]) == _fields(documented[name][0])


def _fields(value: Any) -> Any:
    """Names, to the bottom; controls are data."""
    if not isinstance(value, dict):
        return None
    return {name: {} if name == "controls" else _fields(one) for name, one in value.items()}
