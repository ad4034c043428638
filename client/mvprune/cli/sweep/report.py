"""mvpctl sweep report"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune.cli.shared.live import Bar, Lines, Silence, live
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.provided import install
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import path
from mvprune.cli.sweep.follow import SWEEP_ARGUMENT
from mvprune.common.exceptions import NotFound
from mvprune.sweep.tickets.study import STRATEGY

if TYPE_CHECKING:
    from mvprune.client.client import Client
    from mvprune.client.sweep_models import SweepPoint
    from mvprune.sweep.report import PointDetails

_DETAILS = """Writes report.html, report.md, report.csv and report.json into a folder. Those of an earlier run are
replaced. A sweep that goes on is reported as it is.

For the overlap of masks it downloads the artifact of one point a method to a temporary folder, of at most five;
--no-masks leaves the overlap out and downloads only manifests."""


def report_command(argv: Sequence[str]) -> None:
    """Writes the report of a sweep."""
    parser = command_parser("sweep report", "mvpctl sweep report sst2-k3x9 report/", _DETAILS, job=False)
    parser.add_argument("sweep", metavar="SWEEP", help=SWEEP_ARGUMENT)
    parser.add_argument("directory", type=path, metavar="DIR", help="a folder; it is created")
    parser.add_argument("--no-masks", action="store_true", help="leave out the overlap of masks")
    args = parser.parse_args(argv)
    masks = not args.no_masks
    if masks and find_spec("numpy") is None:
        print(f"note: the overlap of masks is left out: it needs {install('runtime')}", file=sys.stderr)
        masks = False
    with connect(args) as client, refusals("runtime"), live(args.form.progress) as progress:
        from mvprune.sweep.report import points_to_detail, write

        sweep = client.get_sweep(args.sweep)
        points = list(sweep.points())
        best = sweep.recommendation.point if sweep.recommendation else None
        chosen = set() if sweep.spec.strategy == STRATEGY else set(points_to_detail(points, best))  # it has no masks
        wanted = [point for point in points if point.number in chosen]
        files = write(sweep, points, args.directory, list(_details(client, wanted, progress, masks=masks)))
    shown = [str(file) for file in files]
    answer(args.form, {"files": shown}, shown, lambda: print("\n".join(map(clean, shown))))


def _details(
    client: Client, points: Sequence[SweepPoint], progress: Lines | Bar | Silence, *, masks: bool
) -> Iterator[PointDetails]:
    """The details of the points' artifacts; says on stderr which of them are deleted."""
    from mvprune.artifact.manifest import MANIFEST_FILE
    from mvprune.sweep.report import details_of

    for point in points:
        with tempfile.TemporaryDirectory(prefix="mvpctl-") as scratch:
            folder = Path(scratch) / "artifact"
            try:
                if masks:
                    client.download(point.artifact, folder, progress.bytes)
                else:
                    folder.mkdir()
                    (folder / MANIFEST_FILE).write_bytes(client.manifest(point.artifact))
            except NotFound:
                text = f"note: the artifact of point {point.number} is deleted: its layers and masks are left out"
                print(clean(text), file=sys.stderr)
                continue
            yield details_of(folder)
