"""Progress of several jobs at once: a bar for each on a terminal, lines that begin with the job's id elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from mvprune.cli.shared.live import Lines, coloured, live_details, live_steps, new_bars
from mvprune.cli.shared.text import clean
from mvprune.client.display import state

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mvprune.client.models import JobRecord


class JobLines:
    """Lines of `Lines` for each job."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: dict[str, Lines] = {}

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""
        if job.name not in self._lines:
            self._lines[job.name] = Lines(self._stream, about=job.id)
        self._lines[job.name].show(job)


class JobBars:
    """A bar for each job that goes on, below a count of those that have ended. The end of a job is a line above.

    Args:
        total: number of jobs.
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        self._bars = new_bars(stream)
        self._total = total
        self._ended: set[str] = set()
        self._tasks: dict[str, TaskID] = {}
        self._all = self._bars.add_task("jobs that have ended", total=total, steps=f"0/{total}", details="")

    def show(self, job: JobRecord) -> None:
        """A job as it is now."""
        if job.state.is_terminal:
            self._end(job)
            return
        if job.name not in self._tasks:
            self._tasks[job.name] = self._bars.add_task("", total=None, steps="", details="")
        progress = job.progress
        self._bars.update(
            self._tasks[job.name],
            description=coloured(clean(state(job)), about=job.id),
            completed=progress.step if progress else 0,
            total=(progress and progress.total_steps) or None,
            steps=live_steps(job),
            details=live_details(job),
        )

    def _end(self, job: JobRecord) -> None:
        if job.name in self._ended:
            return
        self._ended.add(job.name)
        if job.name in self._tasks:
            self._bars.remove_task(self._tasks.pop(job.name))
        self._bars.console.print(coloured(clean(state(job)), about=job.id), highlight=False)
        count = len(self._ended)
        self._bars.update(self._all, completed=count, steps=f"{count}/{self._total}")

    def __enter__(self) -> JobBars:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bars.stop()


@contextlib.contextmanager
def live_jobs(stream: TextIO | None, total: int) -> Iterator[JobLines | JobBars | None]:
    """Progress of so many jobs in the form that fits the stream; None: none at all."""
    if stream is None:
        yield None
    elif stream.isatty():
        with JobBars(stream, total) as bars:
            yield bars
    else:
        yield JobLines(stream)
