"""Causal language modelling: each next token of a text, from those before it.

The texts of a split are one stream of tokens: each has the tokenizer's begin token before it, if there is one, and the
end-of-text token after it. A stream without begin tokens starts with the end-of-text token, so that every token of a
text is predicted.

In training the stream is cut into blocks of `max_length` tokens; the first token of a block is not predicted.

In evaluation, windows of `max_length` tokens advance by half of that. Each token of the stream counts once, in the
first window that has it, end-of-text tokens too; begin tokens and unknown tokens do not count. Its context is what the
window has before it: in the first window all of the stream before it, in later ones at least half of a window. Tokens
of an earlier text are context too. Perplexity is exp of the mean loss of the tokens that count.

Pairs of a prompt and an answer are examples by themselves: the prompt, then the answer with the end-of-text token after
it. Only the answer's tokens are predicted and count. The prompt is written by the tokenizer's chat template as a user's
message, the answer as the assistant's; without a template a line end separates the two. Of a pair longer than
`max_length` the first tokens of the prompt are left out, and if the answer is longer than that, its last ones too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mvprune.data.kinds.base import Task
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.tasks.base import Field
from mvprune_core.tasks.batching import IGNORED, Examples, Indices, Sources, pad_token, tokenize
from mvprune_core.tasks.language import LanguageModelling
from mvprune_core.tasks.losses import Loss, NextTokenCrossEntropy
from mvprune_core.tasks.outputs import DistilledOutput, VocabularyLogits
from mvprune_core.tasks.probes import frame, probes

_LEAST = 2  # tokens of a block: one to predict, from one before it
_TRIAL = 16  # tokens of the trial of a model
_TOLERANCE = 1e-5  # of the largest logit: what rounding may change

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class CausalLanguageModelling(LanguageModelling):
    """The next token of a text."""

    kind: ClassVar[str] = "causal-lm"
    ahead: ClassVar[int] = 1
    writes: ClassVar[bool] = True
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (VocabularyLogits(),)
    any_can_teach: ClassVar[bool] = True
    suggestion: ClassVar[str] = "a decoder such as GPT-2, OPT, Llama or Qwen"

    def loss(self, config: Any) -> Loss:
        return NextTokenCrossEntropy()

    def check_config(self, config: Any) -> None:
        super().check_config(config)
        if config.is_encoder_decoder:  # transformers would take its decoder, and leave matrices without a use in it
            raise CompressionError(
                Reason.UNSUPPORTED_ARCHITECTURE,
                f"the model must be a decoder for {self.kind}, got {config.model_type}, which has an encoder; "
                f"give {self.suggestion}",
            )

    def flaw_of_model(self, model: nn.Module, tokenizer: Any) -> str:
        """A trial: two inputs that differ in the last token have the same logits before it."""
        last = probes(tokenizer, _TRIAL).inputs["input_ids"][-1]
        other = np.append(last[:-1], last[0] if last[0] != last[-1] else (last[-1] + 1) % len(tokenizer))
        ids = torch.from_numpy(np.stack([last, other])).long()
        with torch.inference_mode():
            logits = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, :-1].float()
        if (logits[0] - logits[1]).abs().max() <= _TOLERANCE * logits.abs().max():
            return ""
        return f"must predict a token only from those before it, got {type(model).__name__}, which reads later ones too"

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        return (Field("text"),)

    @classmethod
    def prompt(cls, options: Mapping[str, Any], tokenizer: Any, text: str, room: int | None) -> list[int]:
        """Begun as in training; of a text that is too long its last tokens."""
        begin, _ = _ends(tokenizer)
        tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        left_out = 0 if room is None else max(0, len(begin) + len(tokens) - room)
        return [*begin, *tokens[left_out:]]

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        if self.data.train_answers:
            pairs = _pairs(self.data.train, self.data.train_answers, tokenizer, max_length)
            return Examples(pairs, {}, pad_token(tokenizer))
        ids, labels = _stream(self.data.train, tokenizer, max_length)
        inputs: dict[str, list[Ids]] = {"input_ids": [], "labels": []}
        for start in range(0, len(ids), max_length):
            block = slice(start, start + max_length)
            _append(inputs, ids[block], labels[block].copy())
        return Examples(inputs, {}, pad_token(tokenizer))

    def flaw_of_targets(self) -> str:
        if self.data.train_answers:
            return ""
        return "for plain texts, which have no targets, got true; give prompts and answers (text_pair_column)"

    def sources(self, tokenizer: Any, config: Any, max_length: int, which: Indices) -> Sources:
        """Prompts. An answer gets as many tokens as the longest one of the data, but at most half of `max_length`; the
        prompt gets the others."""
        end = _checked_end(tokenizer, max_length)
        answers = [*tokenize(tokenizer, self.data.train_answers, None, add_special_tokens=False, verbose=False)]
        longest = 1 + max(len(row) for some in answers for row in some["input_ids"])
        room = min(longest, max_length // 2)
        prompts = [prompt_ids(tokenizer, self.data.train[index])[room - max_length :] for index in which]
        rows = [np.array(prompt, np.int32) for prompt in prompts]
        examples = Examples({"input_ids": rows}, {}, pad_token(tokenizer), padding_side="left", tokenizer=tokenizer)
        return Sources(examples, {"max_new_tokens": room, "eos_token_id": end, "pad_token_id": examples.pad_token})

    def with_targets(self, which: Indices, texts: Sequence[str]) -> CausalLanguageModelling:
        answers = tuple(text or self.data.train_answers[index] for index, text in zip(which, texts, strict=True))
        prompts = tuple(self.data.train[index] for index in which)
        return replace(self, data=replace(self.data, train=prompts, train_answers=answers))

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        if self.data.validation_answers:
            pairs = _pairs(self.data.validation, self.data.validation_answers, tokenizer, max_length)
            return Examples({"input_ids": pairs["input_ids"]}, {}, pad_token(tokenizer), {"label": pairs["labels"]})
        ids, labels = _stream(self.data.validation, tokenizer, max_length)
        found: dict[str, list[Ids]] = {"input_ids": [], "labels": []}
        counted = 0
        while counted < len(ids):
            start = max(0, counted - max_length + stride_of(max_length)) if counted else 0
            end = min(start + max_length, len(ids))
            once = labels[start:end].copy()
            once[: counted - start] = IGNORED
            _append(found, ids[start:end], once)
            counted = end
        return Examples({"input_ids": found["input_ids"]}, {}, pad_token(tokenizer), {"label": found["labels"]})


def stride_of(max_length: int) -> int:
    """Tokens by which the windows of an evaluation advance."""
    return max_length // 2


def _unknown(tokenizer: Any) -> set[int]:
    return {tokenizer.unk_token_id} - {tokenizer.eos_token_id, None}  # GPT-2's unknown token is its end of text


def _checked_end(tokenizer: Any, max_length: int) -> int:
    """The end-of-text token. Raises what `_stream` does of it and of `max_length`."""
    if max_length < _LEAST:
        raise ValueError(f"training.max_length must be at least {_LEAST} for causal-lm, got {max_length}")
    if tokenizer.eos_token_id is None:
        raise CompressionError(
            Reason.INVALID_MODEL,
            "the model's tokenizer must have an end-of-text token for causal-lm, got none; set eos_token in its "
            "tokenizer_config.json",
        )
    return int(tokenizer.eos_token_id)


def _pairs(prompts: Sequence[str], answers: Sequence[str], tokenizer: Any, max_length: int) -> dict[str, list[Ids]]:
    """Rows of prompts and answers, and their labels: the tokens of the answers, and the end-of-text token."""
    end = _checked_end(tokenizer, max_length)
    rows: dict[str, list[Ids]] = {"input_ids": [], "labels": []}
    for prompt, answer in zip(prompts, answers, strict=True):
        before = prompt_ids(tokenizer, prompt)
        after = [*tokenizer(answer, add_special_tokens=False, verbose=False)["input_ids"], end][: max_length - 1]
        before = before[-(max_length - len(after)) :]
        ids = np.array([*before, *after], dtype=np.int32)
        labels = np.where(np.isin(ids, [*_unknown(tokenizer)]), np.int32(IGNORED), ids)
        labels[: len(before)] = IGNORED
        _append(rows, ids, labels)
    return rows


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The tokens of a prompt, up to where its answer begins.

    Raises:
        CompressionError: INVALID_MODEL, the chat template does not take it.
    """
    if tokenizer.chat_template is not None:
        message = [{"role": "user", "content": prompt}]
        try:
            written = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template is a program that may raise anything
            raise CompressionError(
                Reason.INVALID_MODEL,
                "the chat template of the model's tokenizer must take a user's message, got "
                f"{type(error).__name__}: {error!s:.200}; correct it, or remove it",
            ) from error
        return list(tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"])
    begin, _ = _ends(tokenizer)
    return [*begin, *tokenizer(f"{prompt}\n", add_special_tokens=False, verbose=False)["input_ids"]]


def _ends(tokenizer: Any) -> tuple[list[int], bool]:
    """The tokens before a text: the tokenizer's own begin tokens, or else the end-of-text token; and which it is."""
    end = tokenizer.eos_token_id
    begin = [number for number in frame(tokenizer)[0].tolist() if number != end]
    return begin or [end], bool(begin)


def _append(rows: dict[str, list[Ids]], ids: Ids, labels: Ids) -> None:
    """Appends a row, whose first token has nothing before it; one without labels is left out."""
    labels[:1] = IGNORED
    if (labels != IGNORED).any():
        rows["input_ids"].append(ids)
        rows["labels"].append(labels)


def _stream(texts: Sequence[str], tokenizer: Any, max_length: int) -> tuple[Ids, Ids]:
    """The texts as one row of tokens, and their labels: the tokens themselves, −100 for those that do not count.

    Raises:
        CompressionError: INVALID_MODEL, the tokenizer has no end-of-text token; INVALID_DATASET, it knows no token of
            the texts.
        ValueError: `max_length` is too short.
    """
    end = _checked_end(tokenizer, max_length)
    begin, is_own = _ends(tokenizer)
    begin = begin if is_own else []
    parts = [[] if begin else [end]]
    for encodings in tokenize(tokenizer, texts, None, add_special_tokens=False, verbose=False):
        parts += [[*begin, *row, end] for row in encodings["input_ids"]]
    ids: Ids = np.concatenate([np.array(part, dtype=np.int32) for part in parts])
    labels = np.where(np.isin(ids, [*begin, *_unknown(tokenizer)]), np.int32(IGNORED), ids)
    if not ((labels != IGNORED) & (labels != end)).any():
        raise CompressionError(Reason.INVALID_DATASET, "the texts have no token that the model's tokenizer knows")
    return ids, labels
