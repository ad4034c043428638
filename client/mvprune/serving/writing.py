"""The interface between the server and a model that writes text: what is asked for, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mvprune.data.textfiles import DataError

Messages = Sequence[Mapping[str, str]]
"""A chat, each message with its role and content."""

MAX_NEW_TOKENS = 1024
MAX_SECONDS = 120.0


@dataclass(frozen=True)
class Wanted:
    """One text to write.

    Attributes:
        prompt: the text that the model reads, or a chat, which the tokenizer's chat template writes.
        settings: arguments of transformers' `generate`, for settings that are not to be the model's own.
        seed: of sampling; None: another one each time.
        stop: texts before which the answer ends.
        is_cut: whether a prompt that is too long is cut. Else it is refused.
        most_tokens: new tokens at most, where `settings` has no max_new_tokens.
        seconds: from the first token to the last; then the text ends where it is.
    """

    prompt: str | Messages
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    stop: Sequence[str] = ()
    is_cut: bool = False
    most_tokens: int = MAX_NEW_TOKENS
    seconds: float = MAX_SECONDS


@dataclass(frozen=True)
class Piece:
    """The next part of a text: whole characters, and how many tokens wrote it."""

    text: str
    tokens: int


@dataclass(frozen=True)
class Written:
    """A whole answer.

    Attributes:
        text: without the prompt and without special tokens.
        tokens: that were written, with the end-of-text token.
        reason: why it ended: stop (the model ended it or one of `stop` came), length (it has as many tokens as it may
            have) or time (the time was over, or the caller wanted no more).
        prompt_tokens: that the model read.
        truncated_tokens: of the prompt that were left out.
    """

    text: str
    tokens: int
    reason: str
    prompt_tokens: int
    truncated_tokens: int

    @property
    def prediction(self) -> dict[str, Any]:
        """The answer of a plain prediction, which says what was left out of the text only if something was."""
        truncated = {"truncated_tokens": self.truncated_tokens} if self.truncated_tokens else {}
        return {"generated_text": self.text, **truncated}


class PromptRefused(Exception):
    """A prompt that the model cannot take.

    Attributes:
        message: the rule and the value, to follow the name of what was given.
        is_too_long: whether this is why.
    """

    def __init__(self, message: str, *, is_too_long: bool = False) -> None:
        super().__init__(message)
        self.message, self.is_too_long = message, is_too_long


def refused_by_template(error: Exception) -> PromptRefused:
    """That a chat template raised an error."""
    return PromptRefused(f"must be a chat that the model's chat template takes: {error!s:.200}")


def predicted(writer: Writer, inputs: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Plain predictions, one after the other: what follows each text, by the settings of the model.

    Raises:
        DataError: the tokenizer drops all of a text.
    """
    try:
        return [writer.write(Wanted(given["text"], is_cut=True)).prediction for given in inputs]
    except PromptRefused as refused:
        raise DataError("text", refused.message) from refused


class Writer(Protocol):
    """A model that writes text. Several threads may call it at once; what it writes does not depend on the others."""

    @property
    def why_no_chat(self) -> str:
        """Why it takes no chats, as the end of a sentence; "" where it does."""

    @property
    def why_no_sampled_beams(self) -> str:
        """Why `num_beams` must be 1 where a text is sampled, and what to do; "" where it may be more."""

    def write(
        self, wanted: Wanted, hear: Callable[[Piece], None] | None = None, is_stopped: Callable[[], bool] = bool
    ) -> Written:
        """Writes a text.

        Args:
            wanted: what to write.
            hear: receives an empty piece when the prompt is accepted, and then the pieces of the text.
            is_stopped: asked after each token; where it says yes, the text ends there.

        Raises:
            PromptRefused: see there.
        """
