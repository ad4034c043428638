"""The text of tokens that come one by one, in pieces that are final."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"  # tokenizers decode a character whose bytes are not all there so


class Pieces:
    """Gives out a growing text once, no part of it before it is final.

    Held back are the characters of which bytes are missing, the beginning of what may become a stop text, and, where
    the tokenizer removes spaces before punctuation, the last word. All tokens are decoded each time: a tokenizer may
    write a token otherwise at the beginning of a text than after others.

    Args:
        decode: the text of tokens.
        stop: texts before which the whole ends.
        removes_spaces: whether `decode` removes spaces before punctuation.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str], *, removes_spaces: bool) -> None:
        self._decode, self._stop, self._removes_spaces = decode, tuple(stop), removes_spaces
        self._given = ""

    def add(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """The next piece of the text of all tokens so far, and whether it ends with it: a stop text came."""
        text, is_stopped = self._until_stop(self._decode(tokens))
        return self._next(text if is_stopped else self._final(text)), is_stopped

    def end(self, tokens: Sequence[int]) -> tuple[str, str]:
        """The last piece, and the whole text."""
        text, _ = self._until_stop(self._decode(tokens))
        return self._next(text), text

    def _until_stop(self, text: str) -> tuple[str, bool]:
        found = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        return (text[: min(found)], True) if found else (text, False)

    def _final(self, text: str) -> str:
        text = text.rstrip(_INCOMPLETE)
        if self._removes_spaces:
            text = text[: max(0, text.rfind(" "))]
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        return text[: len(text) - held]

    def _next(self, text: str) -> str:
        piece = text[len(self._given) :] if text.startswith(self._given) else ""
        self._given += piece
        return piece


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of a text that are the beginning of a stop text."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
