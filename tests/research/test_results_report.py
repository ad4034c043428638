"""The report that is made of the csv of the quality table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from results_log import Log
from results_plan import SELF
from results_report import OVERVIEW, TABLES, BadPage, Cell, markers, write_report
from tests.research.result_rows import RUN, row


class TestReport:
    def test_cells(self):
        assert str(Cell((0.7,), (-0.1,))) == "70.0 (1), -10.0"
        assert str(Cell((0.70, 0.72, 0.74), (-0.1, -0.1, 0.2))) == "72.0 ± 2.0 (3), +0.0"

    def test_runs_that_are_trained_otherwise_stand_apart(self, tmp_path: Path):
        constant = replace(RUN, learning_rate_growth=0.0)
        runs = [RUN, replace(RUN, dropout=True), constant, replace(constant, dropout=True)]
        assert [run.name.partition("seed=0")[2] for run in runs] == ["", " dropout", " constant", " dropout constant"]
        assert len({run.shared for run in runs}) == 2  # the rate is the pruned matrices'
        log = Log(tmp_path / "results" / "runs.csv")
        for run, dense in zip(runs, (0.8, 0.9, 0.6, 0.7), strict=True):
            log.append(row(run, dense=dense))
        page = tmp_path / "results.md"
        write_report(page, tmp_path / "results", runs, log.rows())
        tables = [table.partition("\n") for table in page.read_text().split("### tiny on MRPC")[1:]]
        assert [(title, re.findall(r"dense \| – \| ([\d.]+)", table)[0]) for title, _, table in tables] == [
            ("", "80.0"),
            (", with dropout", "90.0"),
            (", at a constant learning rate", "60.0"),
            (", with dropout, at a constant learning rate", "70.0"),
        ]
        assert {path.name for path in (tmp_path / "results").glob("*.svg")} == {
            "tiny-mrpc.svg",
            "tiny-mrpc-dropout.svg",
            "tiny-mrpc-constant.svg",
            "tiny-mrpc-dropout-constant.svg",
        }

    def test_tables_from_the_csv(self, tmp_path: Path):
        runs = [replace(RUN, density=density, seed=seed) for density in (0.5, 0.1) for seed in (0, 1)]
        taught = replace(RUN, label="SMvP", density=0.1, teacher=SELF)
        failed = replace(RUN, label="L0", density=0.1)
        log = Log(tmp_path / "results" / "runs.csv")
        for run, metric in zip(runs, (0.78, 0.76, 0.70, 0.66), strict=True):
            log.append(row(run, metric, dense=0.80 + 0.01 * run.seed))
        log.append(row(taught, 0.75))
        log.append(row(failed, error="DENSITY_NOT_REACHED: too far"))
        log.append(row(replace(RUN, steps=7777)))  # of no plan
        page = tmp_path / "results.md"
        (first, second), (third, fourth) = markers(OVERVIEW), markers(TABLES)
        page.write_text(f"by hand\n{first}\n{second}\nmore\n{third}\nold\n{fourth}\nby hand too\n")
        every = [*runs, taught, failed, replace(RUN, seed=5)]
        write_report(page, tmp_path / "results", every, log.rows())
        glance = """| | metric | dense | weights left | MaP | MvP | SMvP | L0 | random |
|---|---|--:|--:|--:|--:|--:|--:|--:|
| tiny on MRPC | accuracy | 80.5 | 10 % |  |  | -5.0 (1) |  |  |
"""
        tables = """6 of 7 runs are done; raw values are in [runs.csv](results/runs.csv).

### tiny on MRPC

accuracy in %: mean ± standard deviation (number of seeds), difference from the dense model of the same run. \
10 steps of 4, learning rate 0.0001, fp32.

| method | distilled from | 100 % | 50 % | 10 % |
|---|---|--:|--:|--:|
| dense | – | 80.5 ± 0.7 (2) |  |  |
| MaP | – |  | 77.0 ± 1.4 (2), -3.5 | 68.0 ± 2.8 (2), -12.5 |
| SMvP | its dense self |  |  | 75.0 (1), -5.0 |
| weights left | – | 1,000 | 500 | 100 |
| non-zero in the encoder | – | 1,100 | 600 | 200 |

The same in f1:

| method | distilled from | 100 % | 50 % | 10 % |
|---|---|--:|--:|--:|
| dense | – | 90.5 ± 0.7 (2) |  |  |
| MaP | – |  | 82.0 ± 1.4 (2), -8.5 | 73.0 ± 2.8 (2), -17.5 |
| SMvP | its dense self |  |  | 80.0 (1), -10.0 |

![tiny on MRPC](results/tiny-mrpc.svg)

- failed: tiny mrpc L0 10% teacher=none seed=0: DENSITY_NOT_REACHED: too far
"""
        assert page.read_text() == (
            f"by hand\n{first}\n{glance}{second}\nmore\n{third}\n{tables}{fourth}\nby hand too\n"
        )
        picture = tmp_path / "results" / "tiny-mrpc.svg"
        drawn = picture.read_bytes()
        write_report(page, tmp_path / "results", every, log.rows())
        assert picture.read_bytes() == drawn
        assert {"MaP", "SMvP", "labels alone", "distilled from its dense self", "accuracy, %"} <= {
            text.strip() for text in picture.read_text().replace("<", ">").split(">")
        }

    def test_the_overview_has_runs_with_the_defaults_taught_by_the_dense_model(self, tmp_path: Path):
        telling = replace(RUN, density=0.03, teacher=SELF)
        runs = [
            telling,
            replace(telling, seed=1),
            replace(telling, label="SMvP"),
            replace(telling, teacher=""),
            replace(telling, density=0.5),
            replace(telling, label="L0", dropout=True),
        ]
        log = Log(tmp_path / "results" / "runs.csv")
        for run, metric in zip(runs, (0.70, 0.68, 0.75, 0.1, 0.1, 0.1), strict=True):
            log.append(row(run, metric))
        page = tmp_path / "results.md"
        write_report(page, tmp_path / "results", runs, log.rows())
        begin, end = markers(OVERVIEW)
        table = page.read_text().partition(begin)[2].partition(end)[0].splitlines()[3:-2]
        assert table == ["| tiny on MRPC | accuracy | 80.0 | 3 % | -11.0 (2) |  | -5.0 (1) |  |  |"]
        picture = (tmp_path / "results" / "overview.svg").read_text()
        assert "SMvP" in picture
        assert "L0" not in picture

    def test_runs_of_either_precision_stand_in_one_cell(self, tmp_path: Path):
        plan = [replace(RUN, seed=seed) for seed in (0, 1)]
        log = Log(tmp_path / "results" / "runs.csv")
        log.append(row(plan[0], 0.7))
        log.append(row(replace(plan[1], precision="bf16"), 0.8))
        page = tmp_path / "results.md"
        write_report(page, tmp_path / "results", plan, log.rows())
        assert "75.0 ± 7.1 (2), -5.0" in page.read_text()
        assert "learning rate 0.0001, bf16 and fp32." in page.read_text()

    def test_a_page_without_markers_is_left_alone(self, tmp_path: Path):
        page = tmp_path / "results.md"
        page.write_text("by hand\n")
        with pytest.raises(BadPage, match=r"lacks the lines .*begin"):
            write_report(page, tmp_path, [RUN], {})
        assert page.read_text() == "by hand\n"
