"""mvpctl sweep download"""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.cli.shared.live import live
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import path
from mvprune.cli.sweep.follow import SWEEP_ARGUMENT
from mvprune.client.exceptions import NoPointPasses
from mvprune.sweep.display import recommended
from mvprune.sweep.tickets.study import STRATEGY


def download_command(argv: Sequence[str]) -> None:
    """Downloads the artifact that a sweep recommends, or those of its front."""
    details = """Verifies every byte. Run again, it resumes an interrupted download, or verifies a complete one.
The exit code is 5 if no point passes the gates, so that none is recommended."""
    example = "mvpctl sweep download sst2-k3x9 out/ --recommended\n  mvpctl sweep download sst2-k3x9 front/ --front"
    parser = command_parser("sweep download", example, details, job=False)
    parser.add_argument("sweep", metavar="SWEEP", help=SWEEP_ARGUMENT)
    parser.add_argument("directory", type=path, metavar="DIR", help="a new folder")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--recommended", action="store_true", help="the recommended artifact, into DIR")
    which.add_argument(
        "--front",
        action="store_true",
        help="the artifacts that no other one is better than, each into a folder in DIR named by number and cell",
    )
    args = parser.parse_args(argv)
    with connect(args) as client, live(args.form.progress) as progress:
        sweep = client.get_sweep(args.sweep)
        if sweep.spec.strategy == STRATEGY:
            raise NoPointPasses(sweep)
        if args.recommended:
            folders = [sweep.download_recommended(args.directory, progress.bytes)]
        else:
            folders = list(sweep.download_front(args.directory, progress.bytes).values())
    shown = [str(folder) for folder in folders]

    def text() -> None:
        if args.recommended:
            print(clean(recommended(sweep)))
        for folder in shown:
            print(f"downloaded and verified: {folder}")

    answer(args.form, {"directories": shown}, shown, text)
