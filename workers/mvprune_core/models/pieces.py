"""The text of tokens that come one by one, in pieces that are final."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"  # tokenizers decode a character whose bytes are not all there so
_WINDOW = 64  # tokens that are decoded each time, about
_CONTEXT = 8  # of them that are decoded again, because a tokenizer may write the first tokens of a text otherwise


class Pieces:
    """Gives out a growing text once, no part of it before it is final.

    Held back are the characters of which bytes are missing, the beginning of what may become a stop text, and, where
    the tokenizer removes spaces before punctuation, the last word.

    Args:
        decode: the text of tokens.
        stop: texts before which the whole ends.
        removes_spaces: whether `decode` removes spaces before punctuation.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str], *, removes_spaces: bool) -> None:
        self._decode, self._stop, self._removes_spaces = decode, tuple(stop), removes_spaces
        self._given = ""
        self._begin, self._before = 0, ""  # of the window: its first token, and the text before it

    def add(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """The next piece of the text of all tokens so far, and whether it ends with it: a stop text came."""
        text, is_stopped = self._until_stop(self._text(tokens))
        return self._next(text if is_stopped else self._final(text)), is_stopped

    def end(self, tokens: Sequence[int]) -> tuple[str, str]:
        """The last piece, and the whole text."""
        text, _ = self._until_stop(self._decode(tokens))
        return self._next(text), text

    def _text(self, tokens: Sequence[int]) -> str:
        text = self._before + self._decode(tokens[self._begin :])
        if len(tokens) - self._begin > _WINDOW:
            begin = len(tokens) - _CONTEXT
            end = self._decode(tokens[begin:])
            if text.endswith(end):
                self._begin, self._before = begin, text[: len(text) - len(end)]
        return text

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
