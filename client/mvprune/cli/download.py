"""mvpctl download"""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.types import path
from mvprune.cli.shared.wait import fetch


def download_command(argv: Sequence[str]) -> None:
    """Downloads the artifact of a job."""
    details = "Verifies every byte. Run again, it resumes an interrupted download, or verifies a complete one."
    parser = command_parser("download", "mvpctl download sst2-k3x9 out/", details)
    parser.add_argument("directory", type=path, metavar="DIR", help="a new folder; it appears when complete")
    args = parser.parse_args(argv)
    with connect(args) as client:
        artifact = client.artifact(args.job)
        folder = fetch(client, artifact, args.directory, args.form)
    answer(args.form, {"directory": str(folder), "artifact": artifact}, [str(folder)], lambda: None)
