"""Checks of data files that a job names: the files are read as a worker would, but for a limited time.

Small files are read here. Others are read in a process of their own, with a low priority and limits of time and
memory: readers are Python code, which would keep the server from answering other calls. What a check found is kept,
mistakes too. This module is also that process: see `main`.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mvprune.common.excerpts import hidden, with_discreet_errors
from mvprune.data.held_out import with_test
from mvprune.data.loading import Columns, DataError, TaskData, load_files
from mvprune.data.tasks import get_task
from mvprune_service.fair import FairThreads

log = logging.getLogger(__name__)

SECONDS = 20.0
"""From the beginning of a call until its files must have been checked: clients wait for 30 s."""
_HERE_BYTES = 256 << 10  # of files that are read in the server's own process: less than 0.1 s
_MEMORY_BYTES = 4 << 30  # of a process: rows take many times the bytes of a file
_PROCESSES, _OF_EACH = 2, 1  # at a time, and of these for each project
_KEPT = 1_000  # results
_FAILED_SECONDS = 300.0  # for which a mistake is remembered: a disk that failed may be well again
_NICE = 10
_COMMAND = ("-m", __name__)  # this module, as a program
_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL")  # others may hold credentials


class Problem(NamedTuple):
    """An error in a file.

    Attributes:
        path: the file, as it was called when it was read.
        text: with that path.
        parameter: train, validation or test, as the dataset's field is called.
    """

    path: str
    text: str
    parameter: str


@dataclass(frozen=True)
class Found:
    """The result of a check.

    Attributes:
        notes: what should be known of the files.
        rows: to train on; None if they were not counted.
        validation: rows to evaluate on, of all files.
        has_pairs: whether each row has two texts.
        problem: what is wrong; None if nothing is.
        options: options of the job that do not fit the data: the name of each, and the rest of a sentence about it.
        unchecked: why the files were not checked to their end; "" if they were.
    """

    notes: tuple[str, ...] = ()
    rows: int | None = None
    validation: int = 0
    has_pairs: bool = False
    problem: Problem | None = None
    options: tuple[tuple[str, str], ...] = ()
    unchecked: str = ""


@dataclass(frozen=True)
class Files:
    """The files and options of a check.

    Attributes:
        task: its name.
        train: to train on.
        validation: to evaluate on.
        more_validation: further files, by the ending of their metrics' names.
        test: to measure the result on once.
        columns: names of columns.
        discreet: whether errors must not quote the files.
        options: those of the job that `Kind.option_problems` looks at.
    """

    task: str
    train: Path
    validation: Path
    more_validation: Mapping[str, Path] = field(default_factory=dict)
    test: Path | None = None
    columns: Columns = Columns()  # noqa: RUF009 (it is frozen)
    discreet: bool = True
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return (self.train, self.validation, *self.more_validation.values(), *([self.test] if self.test else []))

    def problem(self, error: DataError) -> Problem:
        """An error in one of them."""
        path = Path(error.path)
        parameter = "train" if path == self.train else "test" if path == self.test else "validation"
        return Problem(str(path), str(error), parameter)


def read(files: Files) -> Found:
    """Reads the files."""

    given = dict(files.options)
    task = get_task(files.task, given.get("metric", ""))

    def load() -> TaskData:
        splits = (task, files.train, files.validation, files.columns)
        found = load_files(*splits, more_validation=files.more_validation)
        return found if files.test is None else with_test(found, files.test, files.columns)

    try:
        data = with_discreet_errors(load, DataError, when=files.discreet)
    except DataError as error:
        return Found(problem=files.problem(error))
    has_pairs = data.task.kind.has_pairs(data)
    with hidden(when=files.discreet):
        options = tuple(task.kind.option_problems(data, given))
    return Found((*data.columns, *data.notes), len(data.train), len(data.validation), has_pairs, options=options)


class DataChecks:
    """Checks files, and remembers what it found. Projects take turns."""

    def __init__(self) -> None:
        self._threads = FairThreads("data-check", _PROCESSES, _OF_EACH)
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[Future[Found], float]] = OrderedDict()  # and when it began
        self._processes: set[subprocess.Popen[bytes]] = set()

    def close(self) -> None:
        """Ends the processes. No check may follow."""
        with self._lock:
            processes = list(self._processes)
        for process in processes:
            process.kill()
        self._threads.shutdown(cancel_waiting=True)

    def check(self, files: Files, key: Hashable, *, owner: str, deadline: float) -> Found:
        """The results for files. Blocks, until `deadline` at most; the check goes on after that, for later
        calls.

        Args:
            files: the files.
            key: changes with the content of the files.
            owner: the project.
            deadline: of time.monotonic.
        """
        key = (
            files.task,
            files.options,
            files.columns,
            files.discreet,
            tuple(files.more_validation),
            files.test is None,
            key,
        )
        is_small = sum(path.stat().st_size for path in files.paths) <= _HERE_BYTES
        own: Future[Found] | None = None
        with self._lock:
            known, began = self._known.get(key, (None, 0.0))
            if known is None or (_has_failed(known) and time.monotonic() - began > _FAILED_SECONDS):
                known = own = Future() if is_small else self._threads.submit(owner, partial(self._read_apart, files))
                self._known[key] = own, time.monotonic()
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        if own is not None:
            own.add_done_callback(partial(self._forget_if_gone, key, files))
            if is_small:
                _answer(own, partial(read, files))
        try:
            return known.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return Found(unchecked="there was no time for it: other files of the project were being checked")
        except CancelledError:
            return Found(unchecked="the server is stopping")

    def _forget_if_gone(self, key: Hashable, files: Files, done: Future[Found]) -> None:
        """A file that was removed while it was read says nothing about its content, and neither does a failure here."""
        if done.cancelled() or done.exception() is not None or not all(path.exists() for path in files.paths):
            with self._lock:
                self._known.pop(key, None)

    def _read_apart(self, files: Files) -> Found:
        """Reads files in another process, which is killed when its time is over."""
        request = {
            **asdict(files),
            "train": str(files.train),
            "validation": str(files.validation),
            "test": None if files.test is None else str(files.test),
            "more_validation": {ending: str(path) for ending, path in files.more_validation.items()},
        }
        command = [sys.executable, *_COMMAND]
        environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            with self._lock:
                self._processes.add(process)
            try:
                answer, _ = process.communicate(json.dumps(request).encode(), timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return Found(unchecked=f"reading them took more than {SECONDS:g} s")
            finally:
                with self._lock:
                    self._processes.discard(process)
        if process.returncode == -signal.SIGXCPU:
            return Found(unchecked=f"reading them took more than {SECONDS:g} s")
        if process.returncode != 0:
            log.warning("a check of data files ended with the exit code %d", process.returncode)
            return Found(unchecked="reading them took too much memory, or failed")
        return _parsed(json.loads(answer))


def _has_failed(check: Future[Found]) -> bool:
    is_answered = check.done() and not check.cancelled() and check.exception() is None
    return is_answered and check.result().rows is None


def _answer(future: Future[Found], function: Callable[[], Found]) -> None:
    try:
        found = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(found)


def _parsed(answer: dict[str, Any]) -> Found:
    problem, options = answer["problem"], tuple((option, text) for option, text in answer["options"])
    changed = {"notes": tuple(answer["notes"]), "problem": problem and Problem(*problem), "options": options}
    return Found(**{**answer, **changed})


def main() -> None:
    """Reads a request from stdin, and writes what was found to stdout."""
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    files = Files(
        **{
            **request,
            "train": Path(request["train"]),
            "validation": Path(request["validation"]),
            "test": request["test"] and Path(request["test"]),
            "more_validation": {ending: Path(path) for ending, path in request["more_validation"].items()},
            "columns": Columns(**request["columns"]),
        }
    )
    json.dump(asdict(read(files)), sys.stdout)


if __name__ == "__main__":
    main()
