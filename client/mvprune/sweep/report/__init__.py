"""The report of a sweep: report.html, report.md, report.csv and report.json.

numbers = points_to_detail(points)                # whose artifacts show how methods differ
details = [details_of(folder) for folder in …]    # of each of them: a folder with its manifest, or all of it
write(sweep, points, directory, details)
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from mvprune.client.sweep_models import SweepPoint, SweepRecord
from mvprune.sweep.report.data import sweep_csv, sweep_json
from mvprune.sweep.report.details import PointDetails, details_of, points_to_detail
from mvprune.sweep.report.markdown import sweep_markdown
from mvprune.sweep.report.page import sweep_page
from mvprune.sweep.report.results import arrange
from mvprune.sweep.report.tables import CSV_FILE

__all__ = ["PointDetails", "details_of", "points_to_detail", "write"]


def write(
    sweep: SweepRecord, points: Sequence[SweepPoint], directory: Path, details: Sequence[PointDetails] = ()
) -> list[Path]:
    """Writes the report. Files of an earlier one are replaced, each as a whole; other files stay.

    Args:
        sweep: as the server answered.
        points: all of its points.
        directory: where the files go; it is created.
        details: what the artifacts of a few of the points say.

    Returns:
        The files: html, md, csv, json.

    Raises:
        ValueError: details are of an artifact that no point has.
        OSError: a file cannot be written. Then none is replaced, unless it happens between the renames.
    """
    results = arrange(sweep, points)
    known = {point.artifact.rpartition("/")[2]: point.number for point in reversed(points) if point.artifact}
    for one in details:
        if one.artifact not in known:
            raise ValueError(f"details must be of an artifact of a point of the sweep, got {one.artifact!r}")
    detailed = {known[one.artifact]: one for one in details}
    contents = {
        "report.html": sweep_page(results, detailed),
        "report.md": sweep_markdown(results, detailed),
        CSV_FILE: sweep_csv(results),
        "report.json": sweep_json(results, detailed),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".writing-") as draft:
            for name, content in contents.items():
                (Path(draft) / name).write_text(content, encoding="utf-8", newline="", errors="replace")
            for name in contents:
                (Path(draft) / name).replace(directory / name)
    except OSError as error:  # that of a full disk names no file
        raise OSError(error.errno, error.strerror, error.filename or str(directory)) from error
    return [directory / name for name in contents]
