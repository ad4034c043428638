"""What whoever uses a result should know of its run, beside what they asked for."""

from __future__ import annotations

from mvprune_core.callbacks import Callback


class Notes:
    """Collects sentences for the result's manifest, each once, and passes them to the callback as they come.

    Args:
        callback: receives every note.
    """

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._texts: list[str] = []

    def add(self, *texts: str) -> None:
        """Adds notes; what is there already is not added again."""
        for text in texts:
            if text not in self._texts:
                self._texts.append(text)
                self._callback.on_note(text)

    @property
    def texts(self) -> tuple[str, ...]:
        """All notes, in their order."""
        return tuple(self._texts)
