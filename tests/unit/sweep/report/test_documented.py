"""docs/json-output.md and docs/sweep-report.md against the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.unit.sweep.report.made_up import grid, sweep
from tests.unit.sweep.report.reports import DETAILS

from mvprune.sweep.report import write
from mvprune.sweep.report.quantities import COSTS

DOCS = Path(__file__).parents[4] / "docs"
FREE = {"parameters", "metrics", "varied", "labels", "values", "base"}  # their keys are data, or documented elsewhere


def shape(value: Any) -> Any:
    """The fields; of a list, those of its first."""
    if isinstance(value, dict):
        return {key: None if key in FREE else shape(one) for key, one in value.items()}
    return [shape(one) for one in value[:1] if isinstance(one, dict)] if isinstance(value, list) else None


def test_the_json_is_as_documented(tmp_path: Path) -> None:
    files = write(sweep(grid(), notes=("a note",)), grid(), tmp_path, DETAILS)
    (example,) = re.findall(
        r"^## Sweep report file\n.*?```json\n(.*?)```",
        (DOCS / "json-output.md").read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    assert shape(json.loads(example)) == shape(json.loads(files[3].read_text()))


def test_the_page_explains_every_link_and_file(tmp_path: Path) -> None:
    page = (DOCS / "sweep-report.md").read_text()
    assert re.findall(r"^\| (density|non-zero|bytes|FLOPs|latency) \|", page, flags=re.MULTILINE) == [
        cost.column for cost in COSTS
    ]
    files = [path.name for path in write(sweep(grid()), grid(), tmp_path)]
    assert re.findall(r"^\| `(report\.\w+)`", page, flags=re.MULTILINE) == files
