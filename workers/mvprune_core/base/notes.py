"""Notes on a run, for the users of its result."""

from __future__ import annotations

from mvprune_core.base.callbacks import Callback


class Notes:
    """Collects notes for the result's manifest, each once, and passes them to the callback at once.

    Args:
        callback: receives every note.
    """

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._texts: list[str] = []

    def add(self, *texts: str) -> None:
        """Adds notes that are not there yet."""
        for text in texts:
            if text not in self._texts:
                self._texts.append(text)
                self._callback.on_note(text)

    @property
    def texts(self) -> tuple[str, ...]:
        """All notes, in order."""
        return tuple(self._texts)
