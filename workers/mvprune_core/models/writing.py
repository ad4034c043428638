"""Models that write text, token by token: decoders go on from a text, encoder-decoders answer one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import StoppingCriteria, StoppingCriteriaList

from mvprune.artifact.positions import longest_input
from mvprune.serving.turns import Turns
from mvprune.serving.writing import Messages, Piece, PromptRefused, Wanted, Written, refused_by_template
from mvprune_core.models.artifact_loading import Opened
from mvprune_core.models.pieces import Pieces
from mvprune_core.models.turns import Turn
from mvprune_core.tasks import Objective, options_of
from mvprune_core.tasks.batching import pad_token

NEW_TOKENS = 64
"""Tokens that are written at most, unless the model's settings or the caller say otherwise."""

Hear = Callable[[Piece], None]


class Writer:
    """An artifact that writes text, by transformers' `generate` and the settings of its generation_config.json.

    Each text is computed by itself. Threads that write at once compute one token each in turns, so that no text changes
    another one.

    Args:
        opened: the artifact.
        kind: what its task is.
    """

    why_no_sampled_beams = ""

    def __init__(self, opened: Opened, kind: type[Objective]) -> None:
        self._kind, self._options = kind, options_of(opened.task.kind, opened.manifest.spec)
        model: Any = opened.loaded.model
        self._model, self._tokenizer = model, opened.loaded.tokenizer
        self._turns = Turns()
        self._has_encoder = bool(model.config.is_encoder_decoder)
        self._positions = longest_input(model.get_decoder() if self._has_encoder else model)
        self._longest = opened.max_length if self._has_encoder else self._positions

    @property
    def why_no_chat(self) -> str:
        """Why it takes no chats, as the end of a sentence; "" where it does."""
        if self._has_encoder:
            return "the model has an encoder, and answers one text"
        return "" if self._tokenizer.chat_template else "its tokenizer has no chat template"

    def write(self, wanted: Wanted, hear: Hear | None = None, is_stopped: Callable[[], bool] = bool) -> Written:
        """Writes a text: see `mvprune.serving.writing.Writer`."""
        seed = secrets.randbits(63) if wanted.seed is None else wanted.seed
        turn = Turn(self._turns, seed)
        with turn.taken():
            prompt, new_tokens, truncated = self._read(wanted)
            if hear:
                hear(Piece("", 0))
            progress = _Progress(turn, self._pieces(wanted), hear, is_stopped, wanted.seconds)
            ids = torch.tensor([prompt])
            settings = self._model.generation_config
            eos = settings.eos_token_id if settings.eos_token_id is not None else self._tokenizer.eos_token_id
            ends = eos if isinstance(eos, list) else [eos]
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                **(dict(wanted.settings) | {"max_new_tokens": new_tokens}),
                num_return_sequences=1,
                eos_token_id=eos,
                pad_token_id=pad_token(self._tokenizer),
                stopping_criteria=StoppingCriteriaList([progress]),
                tokenizer=self._tokenizer,
            )
            tokens = _until_end(output[0, progress.start :].tolist(), ends)
            text = progress.end(tokens)
            is_whole = len(tokens) < new_tokens or tokens[-1] in ends
            reason = progress.reason or ("stop" if is_whole else "length")
            return Written(text, len(tokens), reason, len(prompt), truncated)

    def _pieces(self, wanted: Wanted) -> Pieces:
        def decode(tokens: Sequence[int]) -> str:
            text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
            return text

        return Pieces(decode, wanted.stop, removes_spaces=bool(self._tokenizer.clean_up_tokenization_spaces))

    def _read(self, wanted: Wanted) -> tuple[list[int], int, int]:
        """The tokens of the prompt, how many new ones there may be, and how many of the prompt's were left out."""
        tokens = self._tokens(wanted.prompt)
        asked = wanted.settings.get("max_new_tokens")
        new_tokens = asked or min(self._usual_tokens(len(tokens)), wanted.most_tokens)
        room, truncated = self._longest, 0
        if room is not None and not self._has_encoder:
            room -= asked or 1
        if room is not None and len(tokens) > room:
            if not (wanted.is_cut and isinstance(wanted.prompt, str) and room > 0):
                raise PromptRefused(self._too_long(len(tokens), asked), is_too_long=True)
            if not asked and not self._has_encoder:  # half of the positions at least are for the prompt
                room = max(room + 1 - new_tokens, (room + 1) // 2)
            truncated = len(tokens)
            tokens = self._kind.prompt(self._options, self._tokenizer, wanted.prompt, room)
            truncated -= len(tokens)
        if self._positions is not None:
            new_tokens = min(new_tokens, self._positions - (1 if self._has_encoder else len(tokens)))
        return tokens, new_tokens, truncated

    def _usual_tokens(self, prompt_tokens: int) -> int:
        """New tokens by the settings of the model, of which max_length counts what its decoder reads first."""
        settings = self._model.generation_config
        first = 1 if self._has_encoder else prompt_tokens
        by_length = max(0, settings.max_length - first) if settings.max_length else 0
        return int(settings.max_new_tokens or by_length or NEW_TOKENS)

    def _too_long(self, tokens: int, asked: int | None) -> str:
        limit = "the longest input in its training" if self._has_encoder else "the model's positions"
        left = f", less {asked:,} for new tokens" if asked and not self._has_encoder else ""
        return f"must have at most {self._longest:,} tokens, {limit}{left}, got {tokens:,}"

    def _tokens(self, prompt: str | Messages) -> list[int]:
        if isinstance(prompt, str):
            tokens = self._kind.prompt(self._options, self._tokenizer, prompt, None)
        else:
            tokens = self._chat(prompt)
        if not tokens:
            raise PromptRefused("must have tokens that the model knows, got none")
        return tokens

    def _chat(self, messages: Messages) -> list[int]:
        try:
            written = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template is a program that may raise anything
            raise refused_by_template(error) from error
        return list(self._tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"])


class _Progress(StoppingCriteria):
    """Follows one call of `generate`, which asks it after each token whether to stop.

    Args:
        turn: offered to other threads after each token.
        pieces: of the text; not used for beams, which may yet change.
        hear: receives pieces.
        is_stopped: whether the caller wants no more.
        seconds: that the text may take.

    Attributes:
        start: index of the first new token.
        reason: why it ends here; "": it goes on, or `generate` has ended it.
    """

    def __init__(
        self, turn: Turn, pieces: Pieces, hear: Hear | None, is_stopped: Callable[[], bool], seconds: float
    ) -> None:
        self._turn, self._pieces, self._hear, self._is_stopped = turn, pieces, hear, is_stopped
        self._last = time.monotonic() + seconds
        self.reason: Literal["", "stop", "time"] = ""
        self._said = 0  # tokens
        self.start = -1

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Whether each row, of shape (rows,), is to end.

        Args:
            input_ids: all tokens so far, shape (rows, tokens): one row, or a beam each.
            scores: not used.
        """
        if self.start < 0:
            self.start = input_ids.shape[1] - 1
        if len(input_ids) == 1:
            tokens = input_ids[0, self.start :].tolist()
            piece, is_stopped = self._pieces.add(tokens)
            self._say(piece, len(tokens))
            if is_stopped:
                self.reason = "stop"
        if not self.reason and (self._is_stopped() or time.monotonic() > self._last):
            self.reason = "time"
        if not self.reason:
            self._turn.offer()
        return torch.full((len(input_ids),), bool(self.reason), device=input_ids.device)

    def end(self, tokens: Sequence[int]) -> str:
        """Says the last piece. Returns the text of all tokens."""
        piece, text = self._pieces.end(tokens)
        self._say(piece, len(tokens))
        return text

    def _say(self, piece: str, tokens: int) -> None:
        if self._hear and piece:
            self._hear(Piece(piece, tokens - self._said))
            self._said = tokens


def _until_end(tokens: list[int], ends: Sequence[int | None]) -> list[int]:
    """Without the padding after the end-of-text token that shorter beams have."""
    return next((tokens[: place + 1] for place, token in enumerate(tokens) if token in ends), tokens)
