"""`make results`: fine-prunes real models on real data, row by row of a plan, and writes research/results.md.

    MVPRUNE_MODELS=… MVPRUNE_DATA=… python research/results.py [--quick] [--only PATTERN] [--limit N] [--minutes M]

Every run that ends is a row of research/results/runs.csv at once; a run that is there already is not done again, and
one that was stopped goes on from its checkpoint. Several processes may work at the same time: none does what another is
doing, nor trains a dense model that another is training.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import torch
from results_log import BadLog, Claims, Key, Log, Row, Run
from results_plan import plan, quick_plan
from results_report import BadPage, read_page, write_report
from results_run import Workplace, execute
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mvprune_core import Callback, Stopped, request_stop
from mvprune_core.callbacks import Progress as Step
from mvprune_core.interruption import check_stop
from mvprune_core.settings import Precision

RESEARCH = Path(__file__).resolve().parent
CACHE = RESEARCH.parent / ".results-cache"
WAIT_SECONDS = 5.0  # for other processes, where each run that is left needs what they are working on
INTERRUPTED = 130


@dataclass(frozen=True)
class Outputs:
    """Where the results go: the csv, the page, and the folder of the plots, which lies beside the page."""

    page: Path
    folder: Path

    @property
    def log(self) -> Log:
        """The csv."""
        return Log(self.folder / "runs.csv")


class Meter(Callback):
    """Shows the phase and the steps of a run."""

    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self._progress, self._bar = progress, bar

    def on_phase(self, name: str) -> None:
        self._progress.update(self._bar, description=name, completed=0, total=None)

    def on_step(self, progress: Step) -> None:
        self._progress.update(self._bar, completed=progress.step, total=progress.total_steps)

    def on_examples(self, phase: str, done: int, total: int) -> None:
        self._progress.update(self._bar, completed=done, total=total)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is left of the plan and writes the report; returns the exit code."""
    options = _parser().parse_args(arguments)
    every = quick_plan() if options.quick else plan()
    outputs = (
        Outputs(CACHE / "quick" / "results.md", CACHE / "quick" / "results")
        if options.quick
        else Outputs(RESEARCH / "results.md", RESEARCH / "results")
    )
    console = Console()
    code = 0
    try:
        read_page(outputs.page)  # what it lacks is said before hours of runs
        if not options.report:
            data = os.environ.get("MVPRUNE_DATA")
            if not data or not os.environ.get("MVPRUNE_MODELS"):
                print(
                    "error: set MVPRUNE_MODELS and MVPRUNE_DATA to the folders of models and data sets, "
                    "such as bert-tiny-uncased and SST-2",
                    file=sys.stderr,
                )
                return 2
            torch.set_num_threads(options.threads)
            signal.signal(signal.SIGINT, _stop)
            signal.signal(signal.SIGTERM, _stop)
            wanted = [replace(run, precision=options.precision) for run in every if options.only.search(run.name)]
            try:
                work(wanted, outputs.log, Workplace(Path(data), CACHE), options, console)
            except Stopped:
                code = INTERRUPTED
        write_report(outputs.page, outputs.folder, every, outputs.log.rows())
    except (BadLog, BadPage) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print(f"the report is in {outputs.page}")
    return code


def work(
    wanted: Sequence[Run],
    log: Log,
    place: Workplace,
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Does what is left of `wanted`, in its order, within the limits of `options`. Raises BadLog, Stopped."""
    claims = Claims(place.cache / "claims")
    started, began, done = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds"), 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        total = progress.add_task("runs", total=len(wanted))
        meter = Meter(progress, progress.add_task("", total=None))
        while True:
            check_stop()
            rows = log.rows()
            left = [run for run in wanted if is_open(rows.get(run.key), began if options.retry else "")]
            progress.update(total, completed=len(wanted) - len(left))
            if not left or done == options.limit or time.monotonic() - started > 60 * options.minutes:
                return
            row = _first_free(left, rows, log, place, claims, meter, progress)
            if row is None:
                time.sleep(WAIT_SECONDS)
            else:
                done += 1


def is_open(row: Row | None, retried_before: str) -> bool:
    """Whether a run is to be done: it has no row, or one of a failure from before that time."""
    return row is None or (bool(row["error"]) and row["finished"] < retried_before)


def _first_free(
    left: Sequence[Run],
    rows: Mapping[Key, Row],
    log: Log,
    place: Workplace,
    claims: Claims,
    callback: Callback,
    progress: Progress,
) -> Mapping[str, object] | None:
    """Does the first run that no other process hinders; its row, or None where there is no such run."""
    for run in left:
        with claims.take([run.identity]) as taken, ExitStack() as computing:
            taken = taken and computing.enter_context(claims.take(run.shared))
            # Another process may have ended the run since the rows were read.
            if taken and log.rows().get(run.key) == rows.get(run.key):
                row = execute(run, place, claims, callback, computing.close)
                log.append(row)
                progress.console.print(f"{run.name}: {_told(row)}")
                return row
    return None


def _told(row: Mapping[str, object]) -> str:
    if row["error"]:
        return f"failed: {row['error']}"
    return f"{row['primary_metric']} {row['metric']}, dense {row['dense']}, {row['seconds']} s"


def _stop(number: int, frame: object) -> None:
    """The first signal ends the run with a checkpoint, the second ends the process."""
    signal.signal(number, signal.SIG_DFL)
    request_stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few short runs instead, under .results-cache/quick")
    parser.add_argument("--report", action="store_true", help="run nothing, rewrite the report from the csv")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="PATTERN", help="of runs' names")
    parser.add_argument("--limit", type=int, metavar="N", help="do N runs at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), metavar="M", help="start no run after M minutes")
    parser.add_argument("--retry", action="store_true", help="do failed runs again")
    parser.add_argument(
        "--precision",
        choices=get_args(Precision),
        default="fp32",
        help="of the training (default: %(default)s); where a CPU has AMX, bf16 is twice as fast, elsewhere slower",
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of torch (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
