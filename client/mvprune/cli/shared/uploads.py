"""Messages about the folders and files that a command sends: notes, and progress while it reads and sends them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mvprune.cli.shared.live import Bar, live
from mvprune.cli.shared.output import Form
from mvprune.cli.shared.text import clean
from mvprune.common.units import size
from mvprune.sources.uploads import CHUNK_BYTES

if TYPE_CHECKING:
    from mvprune.client.upload_models import UploadProgress

_MOST_FILES = 8  # that a note names
_MOST_LEFT_OUT = 5


@contextlib.contextmanager
def sending(form: Form, *, only_checks: bool = False) -> Iterator[Callable[[UploadProgress], None]]:
    """Around a call that may send something: gives what has to be called while it does. All goes to stderr.

    Args:
        only_checks: whether nothing is sent, by --validate-only.
    """
    if form.quiet:
        yield lambda progress: None
        return
    with contextlib.ExitStack() as stack:
        display = _Display(stack, only_checks=only_checks)
        try:
            yield display.show
        except KeyboardInterrupt:
            stack.close()
            if display.sends:
                print("\ninterrupted; what was sent is kept. To resume: the same command", file=sys.stderr)
            raise


class _Display:
    """Notes, each once, and a bar on a terminal or, for what takes a while, a line now and then."""

    def __init__(self, stack: contextlib.ExitStack, *, only_checks: bool) -> None:
        self.sends = False
        self._stack = stack
        self._only_checks = only_checks
        self._noted = set[str]()
        self._live = None if sys.stderr.isatty() else stack.enter_context(live(sys.stderr))

    def show(self, progress: UploadProgress) -> None:
        """An input of the call as it is now."""
        name = progress.path.name
        if progress.stage == "checked":
            for line in _notes(progress, only_checks=self._only_checks):
                if line not in self._noted:
                    self._noted.add(line)
                    self._note(line)
        elif progress.stage == "reading":
            self._bytes(progress.read_bytes, progress.total_bytes, f"reading {name}")
        else:
            self.sends = True
            self._bytes(progress.stored_bytes + progress.sent_bytes, progress.total_bytes, f"sending {name}")

    def _note(self, line: str) -> None:
        if isinstance(self._live, Bar):
            self._live.note(line)
        else:
            print(clean(line), file=sys.stderr, flush=True)

    def _bytes(self, done: int, total: int, what: str) -> None:
        if self._live is None:  # the first thing to show
            self._live = self._stack.enter_context(live(sys.stderr))
        if isinstance(self._live, Bar) or total > CHUNK_BYTES:
            self._live.bytes(done, total, what)


def _notes(progress: UploadProgress, *, only_checks: bool) -> Iterator[str]:
    about = ", ".join(progress.parameters)
    begin = f"note: {about}: " if about else "note: "
    what = f"the folder {progress.path}" if progress.kind == "model" else f"the file {progress.path}"
    total, digest = size(progress.total_bytes), progress.reference.partition(":")[2][:12]
    if progress.stored_bytes == progress.total_bytes and progress.total_bytes:
        yield f"{begin}{what} is on the server already, {total}, digest {digest}"
        return
    verb = "would be sent to the server" if only_checks else "is sent to the server"
    there = f", of which {size(progress.stored_bytes)} are there already" if progress.stored_bytes else ""
    end = "; nothing is sent with --validate-only" if only_checks else ""
    yield f"{begin}{what} {verb}: {_files(progress)}{total} in all{there}, digest {digest}{end}"
    if progress.not_sent:
        left_out = ", ".join(progress.not_sent[:_MOST_LEFT_OUT])
        yield f"{begin}not sent: {left_out}{_more(len(progress.not_sent), _MOST_LEFT_OUT)}"


def _files(progress: UploadProgress) -> str:
    """Names and sizes of a model's files."""
    if progress.kind != "model":
        return ""
    shown = ", ".join(f"{file.path} ({size(file.size_bytes)})" for file in progress.files[:_MOST_FILES])
    return f"{shown}{_more(len(progress.files), _MOST_FILES)}; "


def _more(count: int, shown: int) -> str:
    return f" and {count - shown} more" if count > shown else ""
