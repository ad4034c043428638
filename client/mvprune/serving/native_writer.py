"""Texts that the library without torch writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from mvprune.data.textfiles import DataError
from mvprune.infer import Model, Text, TooLong
from mvprune.serving.batching import Answer, Field, Input
from mvprune.serving.chats import ChatTemplate
from mvprune.serving.turns import Turns
from mvprune.serving.writing import Piece, PromptRefused, Wanted, Written, predicted


class NativeWriter:
    """A model of the library that writes text, with the interface of `Writer` and that of `Predictor`.

    Each text is computed by itself; threads that write at once compute a token each in turns.

    Args:
        model: which writes.
        chats: what writes a chat as the model reads it; None: the model takes no chats.
    """

    why_no_sampled_beams = "the native engine samples no beams; mvpctl serve --engine torch does"

    def __init__(self, model: Model, chats: ChatTemplate | None) -> None:
        self._model, self._chats = model, chats
        self.fields: Sequence[Field] = model.fields
        self._turns = Turns()

    @property
    def why_no_chat(self) -> str:
        """See `mvprune.serving.writing.Writer`."""
        if self._model.kind != "causal-lm":
            return "the model has an encoder, and answers one text"
        return "" if self._chats else "its tokenizer has no chat template"

    def predict(self, inputs: Sequence[Input]) -> list[Answer]:
        """One answer for each input."""
        return predicted(self, inputs)

    def write(
        self, wanted: Wanted, hear: Callable[[Piece], None] | None = None, is_stopped: Callable[[], bool] = bool
    ) -> Written:
        """Writes a text: see `mvprune.serving.writing.Writer`."""
        text = self._begun(wanted)
        last = time.monotonic() + wanted.seconds
        whole, tokens, said, reason = "", 0, 0, ""

        def say(piece: str) -> None:
            nonlocal whole, said
            whole += piece
            if hear and piece:
                hear(Piece(piece, tokens - said))
                said = tokens

        if hear:
            hear(Piece("", 0))
        while not reason:
            with self._turns.turn():
                token = text.step()
            tokens = text.tokens
            say(token.text if token else "")
            ended = token.ended if token else ""
            reason = ended or ("time" if is_stopped() or time.monotonic() > last else "")
        rest, tokens = text.finish(), text.tokens
        say(rest)
        return Written(whole, tokens, reason, text.prompt_tokens, text.truncated_tokens)

    def _begun(self, wanted: Wanted) -> Text:
        settings: dict[str, Any] = dict(wanted.settings)
        settings |= {"seed": wanted.seed, "most_new_tokens": wanted.most_tokens, "truncate": wanted.is_cut}
        if wanted.stop:
            settings["stop"] = list(wanted.stop)
        is_chat = not isinstance(wanted.prompt, str)
        try:
            return self._model.stream(self._prompt(wanted), has_begin=is_chat, **settings)
        except DataError as error:
            message = (
                error.message
                if error.path == "text"
                else f"cannot be written with these parameters: {error.path} {error.message}"
            )
            raise PromptRefused(message, is_too_long=isinstance(error, TooLong)) from error

    def _prompt(self, wanted: Wanted) -> str:
        if isinstance(wanted.prompt, str):
            return wanted.prompt
        if not self._chats:
            raise PromptRefused(f"must be a text: {self.why_no_chat}")
        return self._chats.prompt(wanted.prompt)
