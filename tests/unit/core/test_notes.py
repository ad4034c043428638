"""Notes of a run: each once, passed on at once, by default to the log."""

from __future__ import annotations

import pytest

from mvprune_core import Callback
from mvprune_core.base.notes import Notes


def test_each_note_is_kept_and_passed_on_once() -> None:
    class Listener(Callback):
        def on_note(self, text: str) -> None:
            heard.append(text)

    heard: list[str] = []
    notes = Notes(Listener())
    notes.add("one", "two")
    notes.add("one")
    assert notes.texts == ("one", "two") == tuple(heard)


@pytest.mark.filterwarnings("error")
def test_a_note_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    Notes(Callback()).add("one")
    assert caplog.messages == ["one"]
    assert caplog.records[0].levelname == "WARNING"
