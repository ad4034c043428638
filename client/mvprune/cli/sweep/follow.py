"""mvpctl sweep watch, and waiting for a sweep."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.live import Bar, Lines, Silence, live
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import Form, answer, print_data
from mvprune.cli.shared.text import clean
from mvprune.cli.sweep.output import Outcomes, exit_code, print_sweep, with_outcomes
from mvprune.client.exceptions import SweepError, SweepWaitTimeout
from mvprune.sweep.display import counts, done, state

if TYPE_CHECKING:
    from mvprune.client.blocking.sweep import Sweep
    from mvprune.client.sweep_models import SweepRecord

SWEEP_ARGUMENT = "a sweep's id, or its name projects/P/sweeps/S"
EXITS = """The exit code reports how the sweep ended: 0: a point passes all gates; 3: it FAILED; 4: it was CANCELLED;
5: no point passes the gates."""


def watch_command(argv: Sequence[str]) -> ExitCode:
    """Shows changes as they come, then the result."""
    details = (
        f"Prints a line at each change until the sweep ends, then its result.\n\n{EXITS} JSON has one sweep per line."
    )
    parser = command_parser("sweep watch", "mvpctl sweep watch sst2-k3x9", details, job=False)
    parser.add_argument("sweep", metavar="SWEEP", help=SWEEP_ARGUMENT)
    args = parser.parse_args(argv)
    with connect(args) as client:
        sweep = client.get_sweep(args.sweep)
        if not args.form.is_data:
            return finish(sweep, None, args.form)
        with _goes_on(sweep.id):
            for change in sweep.watch():
                print_data(change, args.form.output, one_of_many=True)
                sweep = change
        return exit_code(sweep)


def finish(sweep: Sweep, timeout: float | None, form: Form, download: Path | None = None) -> ExitCode:
    """Waits for a sweep, prints its result, and downloads what it recommends if there is a folder for it.

    Raises:
        SweepWaitTimeout: see `Sweep.wait`; in JSON and YAML the sweep is printed all the same.
        NoPointPasses: there is nothing to download.
    """
    try:
        with _goes_on(sweep.id), live(form.progress) as progress:
            ended = sweep.wait(timeout, partial(_show, progress, [*sweep.notes]))
    except SweepWaitTimeout as error:
        _report(error.sweep, sweep, form)
        raise
    except SweepError as error:
        _report(error.sweep, sweep, form)
        return exit_code(error.sweep)
    _report(ended, ended, form)
    code = exit_code(ended)
    if download is not None and code is ExitCode.OK:
        with live(form.progress) as progress:
            folder = ended.download_recommended(download, progress.bytes)
        if form.progress:
            print(clean(f"downloaded and verified: {folder}"), file=form.progress)
    return code


def show(progress: Lines | Bar | Silence, sweep: SweepRecord) -> None:
    """A sweep as it is now."""
    progress.points(state(sweep), done(sweep), sweep.counts.total, counts(sweep))


def _show(progress: Lines | Bar | Silence, known: list[str], sweep: SweepRecord) -> None:
    """A sweep as it is now, after the notes that it has got meanwhile. `known`: those that were shown."""
    for note in sweep.notes:
        if note not in known:
            progress.note(f"note: {note}")
            known.append(note)
    show(progress, sweep)


def _report(sweep: SweepRecord, bound: Sweep, form: Form) -> None:
    found = Outcomes.of(sweep, bound)
    answer(form, with_outcomes(found), [sweep.id], lambda: print_sweep(found, notes=False))


@contextlib.contextmanager
def _goes_on(sweep_id: str) -> Iterator[None]:
    """Ctrl-C ends the command, not the sweep: says so."""
    try:
        yield
    except KeyboardInterrupt:
        text = f"interrupted; sweep {sweep_id} continues. To wait again: mvpctl sweep watch {sweep_id}"
        print(clean(f"\n{text}"), file=sys.stderr)
        raise
