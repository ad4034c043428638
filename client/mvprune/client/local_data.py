"""The data files of this machine in the options of a call, checked as the data of a task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableSequence
from pathlib import Path

from mvprune.client.inputs import FILES, DataOptions
from mvprune.data.checking import check_files
from mvprune.data.columns import Columns
from mvprune.data.tasks import UnknownTask, get_task
from mvprune.data.textfiles import DataError
from mvprune.sources.uploads import is_not_sent_yet


class BadFile(Exception):
    """A file whose rows are wrong; the text says which, and what is allowed.

    Attributes:
        parameter: train, validation or test.
        path: the file.
    """

    def __init__(self, parameter: str, path: Path, text: str) -> None:
        super().__init__(text)
        self.parameter = parameter
        self.path = path


class LocalData:
    """Data that was checked, once as long as nothing writes to the files."""

    def __init__(self) -> None:
        self._known: dict[tuple[DataOptions, tuple[tuple[int, ...], ...]], tuple[str, ...]] = {}

    def notes_on(self, data: DataOptions) -> tuple[str, ...]:
        """Notes on the data, and on data that was not read, a sentence each; () for a task that is not known here.

        Raises:
            BadFile: a file cannot be used.
        """
        files = data.local
        try:
            task = get_task(data.task)
            key = data, tuple(map(_state, files.values()))
            if key not in self._known:
                columns = Columns.named_in(data)
                self._known[key] = check_files(task, files, columns)
            return self._known[key]
        except UnknownTask:
            return ()  # the server says so
        except DataError as error:
            # A file that is named twice is first of all no test.
            name = next(name for name in ("test", *files) if files.get(name) == Path(error.path))
            raise BadFile(name, files[name], str(error)) from None


def merge_notes(answer: MutableSequence[str], found: Mapping[DataOptions, Iterable[str]], names: Iterable[str]) -> None:
    """Puts what is known of data of this machine into the notes of a server that does not have the files.

    Args:
        names: of the files.
    """
    unknown = {is_not_sent_yet(parameter, name) for name in names for parameter in FILES}
    notes = [*(note for note in answer if note not in unknown), *(note for notes in found.values() for note in notes)]
    answer[:] = dict.fromkeys(notes)


def _state(path: Path) -> tuple[int, ...]:
    found: os.stat_result = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
