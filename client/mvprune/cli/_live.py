"""Progress of jobs, sweeps, downloads and evaluations: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from mvprune.cli._output import state_style
from mvprune.cli._text import clean, details, size, state, steps

if TYPE_CHECKING:
    from mvprune.client.models import JobRecord

_SECONDS_BETWEEN_LINES = 5.0


class Lines:
    """One line when the state, its reason or the phase changes, and every few seconds while steps go on.

    Args:
        stream: where to print.
        clock: seconds; only differences count.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._kind: tuple[str, ...] = ()
        self._line = ""
        self._printed_at = 0.0

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""
        phase = job.progress.phase if job.progress else ""
        text = "  ".join(filter(None, (state(job), _steps(job), _details(job))))
        self.line((job.state, job.state_reason, phase), text)

    def points(self, state: str, done: int, total: int, counts: str) -> None:
        """A sweep as it is now."""
        self.line((state, counts), f"{state}  {counts}")

    def bytes(self, done: int, total: int) -> None:
        """A download as it is now."""
        self.line(("fetching", str(done == total)), f"fetching and verifying  {size(done)} of {size(total)}")

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
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=True),
            BarColumn(),
            TextColumn("{task.fields[steps]}  {task.fields[details]}", markup=False),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self._progress.add_task("", total=None, steps="", details="")

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""
        progress = job.progress
        self._progress.update(
            self._task,
            description=_coloured(clean(state(job))),
            completed=progress.step if progress else 0,
            total=(progress and progress.total_steps) or None,
            steps=_steps(job),
            details=_details(job),
        )

    def points(self, state: str, done: int, total: int, counts: str) -> None:
        """A sweep as it is now."""
        self._progress.update(
            self._task, description=_coloured(clean(state)), completed=done, total=total or None, steps=clean(counts)
        )

    def bytes(self, done: int, total: int) -> None:
        """A download as it is now."""
        self._progress.update(
            self._task,
            description="fetching and verifying",
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
        self._progress.update(self._task, description=_coloured(clean(what)))

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

    def bytes(self, done: int, total: int) -> None:
        """A download as it is now."""

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


def _coloured(text: str) -> str:
    """A text in rich's markup, in the colour of the state that it begins with."""
    from rich.markup import escape

    style = state_style(text)
    return f"[{style}]{escape(text)}[/]" if style else escape(text)


def _steps(job: JobRecord) -> str:
    return "" if job.state.is_terminal else clean(steps(job.progress))


def _details(job: JobRecord) -> str:
    return "" if job.state.is_terminal else details(job.progress)
