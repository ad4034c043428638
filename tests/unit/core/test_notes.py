"""Notes of a run: each once, passed on as they come, a Python warning where nobody listens."""

from __future__ import annotations

import pytest

from mvprune_core import Callback
from mvprune_core.notes import Notes


def test_each_note_is_kept_and_passed_on_once() -> None:
    class Listener(Callback):
        def on_note(self, text: str) -> None:
            heard.append(text)

    heard: list[str] = []
    notes = Notes(Listener())
    notes.add("one", "two")
    notes.add("one")
    assert notes.texts == ("one", "two") == tuple(heard)


def test_a_note_is_a_warning_by_default() -> None:
    with pytest.warns(RuntimeWarning, match="^one$"):
        Notes(Callback()).add("one")
