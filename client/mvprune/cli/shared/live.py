"""Progress of jobs, sweeps, downloads, uploads and evaluations: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from mvprune.cli.shared.output import state_style
from mvprune.cli.shared.text import clean
from mvprune.client.display import details, state, steps
from mvprune.common.units import size

if TYPE_CHECKING:
    from rich.progress import Progress

    from mvprune.client.models import JobRecord

_SECONDS_BETWEEN_LINES = 5.0
_FETCHING = "fetching and verifying"


class Lines:
    """One line when the state, its reason or the phase changes, and every few seconds while steps go on.

    Args:
        stream: where to print.
        clock: seconds; only differences count.
        about: what each line begins with.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, about: str = "") -> None:
        self._stream = stream
        self._clock = clock
        self._about = about
        self._kind: tuple[str, ...] = ()
        self._line = ""
        self._printed_at = 0.0

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""
        phase = job.progress.phase if job.progress else ""
        text = "  ".join(filter(None, (self._about, state(job), live_steps(job), live_details(job))))
        self.line((job.state, job.state_reason, phase), text)

    def points(self, state: str, done: int, total: int, counts: str) -> None:
        """A sweep as it is now."""
        self.line((state, counts), f"{state}  {counts}")

    def bytes(self, done: int, total: int, what: str = _FETCHING) -> None:
        """A download or an upload as it is now."""
        self.line((what, str(done == total)), f"{what}  {size(done)} of {size(total)}")

    def inputs(self, done: int, total: int) -> None:
        """An evaluation as it is now."""
        self.line(("evaluating", str(done == total)), f"evaluating  {done:,} of {total:,}")

    def doing(self, what: str) -> None:
        """What is being done, where nothing is counted."""
        self.line((what,), what)

    def note(self, text: str) -> None:
        """A line of its own."""
        print(clean(text), file=self._stream, flush=True)

    def line(self, kind: tuple[str, ...], text: str) -> None:
        """A line that is printed at once if it is of another kind than the one before, else when it is time."""
        is_due = kind != self._kind or self._clock() - self._printed_at >= _SECONDS_BETWEEN_LINES
        if is_due and text != self._line:
            self.note(text)
            self._kind, self._line, self._printed_at = kind, text, self._clock()


class Bar:
    """A bar that stays in its place, with notes above it."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = new_bars(stream)
        self._task = self._progress.add_task("", total=None, steps="", details="")

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""
        progress = job.progress
        self._progress.update(
            self._task,
            description=coloured(clean(state(job))),
            completed=progress.step if progress else 0,
            total=(progress and progress.total_steps) or None,
            steps=live_steps(job),
            details=live_details(job),
        )

    def points(self, state: str, done: int, total: int, counts: str) -> None:
        """A sweep as it is now."""
        self._progress.update(
            self._task, description=coloured(clean(state)), completed=done, total=total or None, steps=clean(counts)
        )

    def bytes(self, done: int, total: int, what: str = _FETCHING) -> None:
        """A download or an upload as it is now."""
        self._progress.update(
            self._task,
            description=coloured(clean(what)),
            completed=done,
            total=total,
            steps=f"{size(done)} of {size(total)}",
        )

    def inputs(self, done: int, total: int) -> None:
        """An evaluation as it is now."""
        self._progress.update(
            self._task, description="evaluating", completed=done, total=total, steps=f"{done:,} of {total:,}"
        )

    def doing(self, what: str) -> None:
        """What is being done, where nothing is counted."""
        self._progress.update(self._task, description=coloured(clean(what)))

    def note(self, text: str) -> None:
        """A line of its own above the bar."""
        self._progress.console.print(clean(text), markup=False, highlight=False)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()


class Silence:
    """Shows nothing."""

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""

    def points(self, state: str, done: int, total: int, counts: str) -> None:
        """A sweep as it is now."""

    def bytes(self, done: int, total: int, what: str = _FETCHING) -> None:
        """A download or an upload as it is now."""

    def inputs(self, done: int, total: int) -> None:
        """An evaluation as it is now."""

    def doing(self, what: str) -> None:
        """What is being done, where nothing is counted."""

    def note(self, text: str) -> None:
        """A line of its own."""


@contextlib.contextmanager
def live(stream: TextIO | None) -> Iterator[Lines | Bar | Silence]:
    """Progress in the form that fits the stream; None: none at all."""
    if stream is None:
        yield Silence()
    elif stream.isatty():
        with Bar(stream) as bar:
            yield bar
    else:
        yield Lines(stream)


def new_bars(stream: TextIO) -> Progress:
    """Bars on a terminal, each a task with the fields `steps` and `details`. Its descriptions are rich's markup."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=True),
        BarColumn(),
        TextColumn("{task.fields[steps]}  {task.fields[details]}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )


def coloured(text: str, about: str = "") -> str:
    """A text in rich's markup, in the colour of the state that it begins with, after the id of a job."""
    from rich.markup import escape

    style = state_style(text)
    styled = f"[{style}]{escape(text)}[/]" if style else escape(text)
    return f"{escape(clean(about))}  {styled}" if about else styled


def live_steps(job: JobRecord) -> str:
    """The steps of a job that goes on."""
    return "" if job.state.is_terminal else clean(steps(job.progress))


def live_details(job: JobRecord) -> str:
    """Loss, density and remaining time of a job that goes on."""
    return "" if job.state.is_terminal else details(job.progress)
