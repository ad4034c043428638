"""What else is right after a page was read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping

from .session import Reader


def _sweeps(reader: Reader) -> None:
    """The stand-in trainer loses 0.05 / density points with movement and obert, 0.4 / density with magnitude."""
    smallest = json.loads(reader.answer("mvpctl sweep get smallest -o json"))
    densities = [point["target_density"] for point in json.loads(reader.answer("mvpctl sweep points smallest -o json"))]
    assert smallest["recommendation"]["passed"]
    assert densities[:4] == [1.0, 1.0, 0.5, 0.338], "it descends"
    assert len(densities) == 12, "a dense model, that model in int8, six that pass, two that miss and two whole runs"
    assert densities[-2:] == densities[-3:-5:-1], "both miss by little, and the smaller one is tried first"
    manifest = json.loads((reader.folder / "small" / "manifest.json").read_text())
    assert manifest["metrics"]["delta/accuracy"] >= -0.01
    assert min(densities) < manifest["accounting"]["target_density"] < max(densities)

    compare = json.loads(reader.answer("mvpctl sweep get compare -o json"))
    assert compare["counts"]["total"] == 10, "8 combinations, and two more"
    assert compare["counts"]["baselines"] == 2, "one for each seed"
    assert {point["method"] for point in compare["front"]} == {"movement"}
    assert len(list((reader.folder / "front").iterdir())) >= 2
    rows = list(csv.reader((reader.folder / "report" / "report.csv").open()))
    assert len(rows) > 10
    assert "<script" not in (reader.folder / "report" / "report.html").read_text()
    assert (reader.folder / "best" / "manifest.json").exists()


AFTER: Mapping[str, Callable[[Reader], None]] = {"docs/sweeps.md": _sweeps}
