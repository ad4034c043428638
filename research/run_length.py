"""How well the rule of mvprune.data.run_length fits the recorded runs: which were too short, and which it warns of.

python research/run_length.py            prints the counts
python research/run_length.py --write    writes them into docs/submit.md
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mvprune.data.gains import KEPT_GAIN, kept_gain
from mvprune.data.run_length import needed_steps
from mvprune.data.tasks import get_task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "research" / "results"
PAGE = ROOT / "docs" / "submit.md"
# The best constant answer on the validation data, by task; for qqp on the whole subset. A correlation with a constant,
# and F1 of no answer, are 0.
CONSTANT = {"sst2": 0.5092, "qqp": 0.6277, "mrpc": 0.6838, "rte": 0.5271, "squad": 0.0, "regression": 0.0}
BATCH = {"squad": 8}  # examples of a step in the files without that column; 32 for the others


class Run(NamedTuple):
    """A recorded run: its result, and the best of the dense model in runs of any length, as fractions."""

    model: str
    task: str
    density: float
    steps: int
    batch_size: int
    value: float
    dense: float

    @property
    def kept(self) -> float | None:
        """The fraction of the dense model's gain over the constant answer that the result keeps; None: no gain."""
        return kept_gain(self.value, self.dense, CONSTANT[self.task])

    @property
    def is_warned_of(self) -> bool:
        """Whether its steps are fewer than the rule asks for."""
        pairs = self.task == "regression" or len(get_task(self.task).text_columns) > 1
        return self.steps < needed_steps(self.density, self.batch_size, has_pairs=pairs)


def runs() -> list[Run]:
    """The gradual runs of all files, with the learning rate that pruned matrices have by default."""
    found = list(_recorded())
    best: dict[tuple[str, str], float] = {}
    for run in found:
        best[run.model, run.task] = max(run.dense, best.get((run.model, run.task), 0.0))
    return [run._replace(dense=best[run.model, run.task]) for run in found]


def _recorded() -> Iterator[Run]:
    """The runs, each with the dense model of its own steps."""
    for row in _rows("runs.csv"):
        metric = "f1" if row["task"] == "squad" else "accuracy"
        value, dense = row[f"eval_{metric}"], row[f"dense_{metric}"]
        is_pruned = float(row["density"]) < 1 and row["method"] != "random" and "one_shot" not in row["options"]
        if is_pruned and row["learning_rate_growth"] == "1.0" and dense:
            yield _run(row, value, dense)
    for name in ("methods.csv", "short-runs.csv"):
        for row in _rows(name):
            if row["schedule"].startswith(("cubic", "linear")) and row["task"] in CONSTANT and row["dense"]:
                yield _run(row, row["value"], row["dense"])


def summary(found: Iterable[Run]) -> str:
    """The table of the documentation."""
    kept = list(found)
    useful = [(run.is_warned_of, run.kept < KEPT_GAIN) for run in kept if run.kept is not None]
    lines = ["| runs | too short by their result | with enough steps |", "| --- | --- | --- |"]
    for warned, name in ((True, "the note warns of"), (False, "the note does not warn of")):
        counts = [useful.count((warned, misses)) for misses in (True, False)]
        lines.append(f"| {name} | {counts[0]} | {counts[1]} |")
    left_out = len(kept) - len(useful)
    note = f"{len(useful)} gradual runs. {left_out} others are left out: their dense models are less than five points"
    return "\n".join([*lines, "", f"{note}\nabove a constant answer."])


def with_summary(page: str, table: str) -> str:
    """A page with the table between its marks."""
    marks = r"(<!-- run length -->\n).*?(<!-- end of run length -->)"
    return re.sub(marks, lambda found: f"{found[1]}{table}\n{found[2]}", page, flags=re.DOTALL)


def _rows(name: str) -> Iterator[dict[str, str]]:
    path = RESULTS / name
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)


def _run(row: dict[str, str], value: str, dense: str) -> Run:
    batch_size = int(row.get("batch_size") or BATCH.get(row["task"], 32))
    return Run(
        row["model"], row["task"], float(row["density"]), int(row["steps"]), batch_size, float(value), float(dense)
    )


def main(arguments: list[str]) -> int:
    """Prints or writes the counts."""
    table = summary(runs())
    if arguments == ["--write"]:
        PAGE.write_text(with_summary(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    else:
        sys.stdout.write(f"{table}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
