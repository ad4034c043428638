"""The command `python -m mvprune_core.tickets`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mvprune_core.errors import CompressionError
from mvprune_core.interruption import Stopped, request_stop
from mvprune_core.tickets.report import report, rows
from mvprune_core.tickets.running import Finished, Runner
from mvprune_core.tickets.study import read_study

_FAILED, _WRONG, _STOPPED = 1, 2, 130  # exit codes


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing of a study, and writes its report. Returns an exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m mvprune_core.tickets",
        description="Finds lottery tickets by magnitude pruning in rounds, and trains their controls and the masks of "
        "other tasks. An interrupted study continues when the command is repeated. See docs/lottery-tickets.md.",
        epilog="example: python -m mvprune_core.tickets study.toml results/",
    )
    parser.add_argument("study", type=Path, metavar="STUDY.toml", help="model, tasks, densities and seeds")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for results; what is there is not run again")
    parser.add_argument("--dry-run", action="store_true", help="print the runs that are missing; run nothing")
    parser.add_argument("--report", action="store_true", help="only write the report of the finished runs")
    args = parser.parse_args(arguments)
    try:
        runner = Runner(read_study(args.study), args.folder)
        if args.dry_run:
            done = {each.cell for each in runner.finished()}
            for cell in runner.study.cells():
                if cell not in done:
                    print(cell.name)
            return 0
        if not args.report:
            with _stopped_by_signals():
                runner.run(_show)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG
    except CompressionError as error:
        print(f"error: {error.reason.name}: {error}", file=sys.stderr)
        return _FAILED
    except Stopped:
        print("stopped; the same command continues", file=sys.stderr)
        return _STOPPED
    found = runner.finished()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "report.md").write_text(report(runner.study, found), encoding="utf-8")
    (args.folder / "results.csv").write_text(rows(found), encoding="utf-8")
    print(args.folder / "report.md")
    return 0


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """A context in which SIGINT and SIGTERM let the run write a checkpoint."""
    before = {number: signal.signal(number, lambda *_: request_stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(result: Finished, number: int, count: int) -> None:
    metric = result.primary_metric
    print(
        f"{number}/{count} {result.cell.name}: {metric} {result.metrics[metric]:.4f}, {result.seconds:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
