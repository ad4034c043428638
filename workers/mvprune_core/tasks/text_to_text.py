"""Summarization and translation: an encoder-decoder reads a text and writes another one.

In training the decoder reads the target, begun with its start token, and each of its tokens is predicted from those
before it, the end-of-text token too. In an evaluation the model writes a text for each source, with the settings of its
generation_config.json and without sampling, and the texts are compared with the targets: see
`mvprune_core.tasks.written`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mvprune.common.excerpts import shown
from mvprune.data.kinds.base import Task
from mvprune.data.loading import TextPairs, TextToTextData
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Field, Objective
from mvprune_core.tasks.batching import DECODER_IDS, Examples, Indices, Sources, pad_token, tokenize
from mvprune_core.tasks.generation import write_texts
from mvprune_core.tasks.losses import CrossEntropy, Loss
from mvprune_core.tasks.outputs import DistilledOutput, VocabularyLogits
from mvprune_core.tasks.resampling import SampleMetric
from mvprune_core.tasks.written import Bleu, Rouge, Written

_GIVEN = ("num_beams", "length_penalty", "no_repeat_ngram_size")
_START = "decoder_start_token_id"
_TOKENS = "target_tokens"
_SHOWN, _READ = 3, 300  # examples of the model card, and characters of each text
_PORTION = 1000  # texts that are tokenised at a time
_LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Za-z]{2,4}")

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class TextToText(Objective):
    """A text that is written from another one."""

    data: TextToTextData
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (VocabularyLogits(),)
    any_can_teach: ClassVar[bool] = True
    writes: ClassVar[bool] = True
    suggestion: ClassVar[str] = "an encoder-decoder such as BART, T5 or Marian"
    written: ClassVar[type[Written]]

    def configure(self, config: Any) -> bool:
        return False  # a pretrained head has the right shape, but was not trained on these texts, as the pruned one is

    def loss(self, config: Any) -> Loss:
        return CrossEntropy()

    def settle(self, model: Any, tokenizer: Any) -> tuple[str, ...]:
        """Gives the model its tokens of start, end and padding, its languages, and the settings of its writing."""
        notes = _settle_tokens(model, tokenizer)
        _settle_languages(model, tokenizer, self.options)
        for name in _GIVEN:
            if name in self.options:
                setattr(model.generation_config, name, self.options[name])
        settings, length = model.generation_config, self._target_length(model.config)
        if "max_target_length" in self.options or not (settings.max_length or settings.max_new_tokens):
            settings.max_length, settings.max_new_tokens = None, length
        return notes

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        return (Field("text"),)

    @classmethod
    def prompt(cls, options: Mapping[str, Any], tokenizer: Any, text: str, room: int | None) -> list[int]:
        """With the prefix; of a text that is too long the first tokens."""
        cut = {} if room is None else {"truncation": True, "max_length": room}
        return list(tokenizer(options.get("source_prefix", "") + text, verbose=False, **cut)["input_ids"])

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        return self._examples(self.data.train, tokenizer, config, max_length)

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        return self._examples(self.data.validation, tokenizer, config, max_length)

    def notes_on(self, train: Examples) -> tuple[str, ...]:
        longest = train.output_lengths.max()
        if cut := sum(int(count[0]) > longest for count in train.notes[_TOKENS]):
            return (
                f"{cut:,} of {len(train):,} targets have more than {longest:,} tokens, and are cut in training "
                "(max_target_length)",
            )
        return ()

    def _target_length(self, config: Any) -> int:
        """Tokens of a target, at most.

        Raises:
            CompressionError: the model's decoder has no positions for so many.
        """
        given, limit = self.options.get("max_target_length"), _positions(config)
        if given is not None and limit is not None and given > limit:
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"max_target_length must be at most {limit:,}, the positions of the model's decoder, got {given:,}",
            )
        length = given or self.data.task.max_target_length
        return length if limit is None else min(length, limit)

    def _examples(self, pairs: TextPairs, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """Sources, cut to `max_length` tokens, and the first target of each, if there are targets."""
        prefix = self.options.get("source_prefix", "")
        sources, targets = [prefix + text for text in pairs.sources], [right[0] for right in pairs.targets if right]
        encodings = tokenize(tokenizer, sources, None, truncation=True, max_length=max_length)
        inputs = [np.array(row, np.int32) for some in encodings for row in some["input_ids"]]
        for row, source in zip(inputs, pairs.sources, strict=True):
            if not len(row):
                rule = "the model's tokenizer must know a token of each source"
                raise CompressionError(Reason.INVALID_DATASET, f"{rule}, got none of {shown(source)}")
        decoder, notes = {}, {}
        if targets:
            rows, counts = _labels(tokenizer, targets, self._target_length(config))
            decoder = {"labels": rows, DECODER_IDS: [shifted(row, config) for row in rows]}
            notes = {_TOKENS: [np.array([count], np.int32) for count in counts]}
        return Examples({"input_ids": inputs}, {}, pad_token(tokenizer), notes, decoder=decoder, tokenizer=tokenizer)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> list[str]:
        """What the model writes for each example."""
        return write_texts(model, Sources(examples), device, group)

    def sources(self, tokenizer: Any, config: Any, max_length: int, which: Indices) -> Sources:
        some = TextPairs(tuple(self.data.train.sources[index] for index in which))
        return Sources(self._examples(some, tokenizer, config, max_length))

    def with_targets(self, which: Indices, texts: Sequence[str]) -> TextToText:
        pairs = self.data.train
        targets = tuple((text or pairs.targets[index][0],) for index, text in zip(which, texts, strict=True))
        some = TextPairs(tuple(pairs.sources[index] for index in which), targets)
        return replace(self, data=replace(self.data, train=some))

    def longest_output(self, config: Any, max_length: int) -> int:
        return self._target_length(config)

    def shortened(self, count: int) -> TextToText:
        pairs = self.data.validation
        chosen = sorted(random.Random(0).sample(range(len(pairs)), count))  # noqa: S311 (no secret)
        sources = tuple(pairs.sources[index] for index in chosen)
        targets = tuple(pairs.targets[index] for index in chosen)
        some = TextPairs(sources, targets)
        return replace(self, data=replace(self.data, validation=some))

    def measure(self, predictions: list[str]) -> dict[str, float]:
        return self.written.metrics(predictions, self.data.validation.targets)

    def sample_metric(self, predictions: list[str]) -> tuple[int, SampleMetric] | None:
        metric = self.written.sampled(self.data.task.primary_metric, predictions, self.data.validation.targets)
        return None if metric is None else (len(predictions), metric)

    def shown(self, predictions: list[str]) -> list[tuple[str, str]]:
        """The first ones, cut to what can be read at a glance."""
        pairs = zip(self.data.validation.sources[:_SHOWN], predictions, strict=False)
        return [(_short(source), _short(text)) for source, text in pairs]

    def signature(self) -> str:
        return self.written.signature(self.data.validation.targets)


@dataclass(frozen=True)
class Summarization(TextToText):
    """The summary of a text."""

    kind: ClassVar[str] = "summarization"
    written: ClassVar[type[Written]] = Rouge
    imports: ClassVar[tuple[str, ...]] = Rouge.modules


@dataclass(frozen=True)
class Translation(TextToText):
    """A text in another language."""

    kind: ClassVar[str] = "translation"
    written: ClassVar[type[Written]] = Bleu
    imports: ClassVar[tuple[str, ...]] = Bleu.modules


def shifted(labels: Ids, config: Any) -> Ids:
    """What the decoder reads to predict these tokens: its start token, and all of them but the last. The start of mBART
    is the last of them, the language."""
    start = labels[-1] if config.model_type == "mbart" else np.int32(getattr(config, _START))
    return np.concatenate([[start], labels[:-1]]).astype(np.int32)


def _short(text: str) -> str:
    return shorten(text, _READ, placeholder=" …")


def _labels(tokenizer: Any, targets: Sequence[str], longest: int) -> tuple[list[Ids], list[int]]:
    """The tokens of targets, cut to the longest length, and how many they were. Each has the end-of-text token."""

    def rows(texts: Sequence[str], **options: Any) -> list[list[int]]:
        parts = (texts[start : start + _PORTION] for start in range(0, len(texts), _PORTION))
        return [row for part in parts for row in tokenizer(text_target=part, verbose=False, **options)["input_ids"]]

    whole = rows(targets)
    counts = [len(row) for row in whole]
    long = [number for number, count in enumerate(counts) if count > longest]
    again = rows([targets[number] for number in long], truncation=True, max_length=longest)
    for number, row in zip(long, again, strict=True):
        whole[number] = row
    end = tokenizer.sep_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id
    ended = (row if end is None or end in row else [*row[: longest - 1], end] for row in whole)
    return [np.array(row, np.int32) for row in ended], counts


def _positions(config: Any) -> int | None:
    """Positions of a model's decoder; None: it has relative ones only."""
    found = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def _settle_tokens(model: Any, tokenizer: Any) -> tuple[str, ...]:
    """Gives a model the tokens of start, end and padding that its files do not name. Returns notes on them."""
    config, settings, notes = model.config, model.generation_config, list[str]()
    candidates = {
        _START: ("cls_token", "pad_token", "bos_token", "eos_token"),
        "eos_token_id": ("eos_token", "sep_token"),
        "pad_token_id": ("pad_token", "eos_token"),
    }
    for name, tokens in candidates.items():
        given = [value for one in (settings, config) if (value := getattr(one, name, None)) is not None]
        token = next((found for each in tokens if (found := getattr(tokenizer, each)) is not None), None)
        if not given and token is None:
            rule = f"the model must have a {name}, got none; set it in its config.json"
            raise CompressionError(Reason.INVALID_MODEL, rule)
        if not given:
            given = [tokenizer.convert_tokens_to_ids(token)]
            notes.append(f"the model's files have no {name}: that of the tokenizer's {token} was taken")
        if getattr(config, name, None) is None:
            setattr(config, name, given[0])
        if getattr(settings, name, None) is None:
            setattr(settings, name, given[0])
    return tuple(notes)


def _settle_languages(model: Any, tokenizer: Any, options: Mapping[str, Any]) -> None:
    """Gives a tokenizer its languages, and the model the token of that in which it writes."""
    for option, attribute in (("source_language", "src_lang"), ("target_language", "tgt_lang")):
        code = options.get(option)
        if not hasattr(tokenizer, attribute):
            if code is not None:
                rule = f"{option} must be unset for a tokenizer without languages, got {code!r}"
                raise CompressionError(Reason.INVALID_MODEL, f"{rule}; a model such as T5 is told by source_prefix")
            continue
        if code is None and getattr(tokenizer, attribute) is not None:
            code = getattr(tokenizer, attribute)
        if code is None or tokenizer.convert_tokens_to_ids(code) in (None, tokenizer.unk_token_id):
            known = ", ".join([one for one in tokenizer.all_special_tokens if _LANGUAGE.fullmatch(one)][:20])
            got = "none" if code is None else repr(code)
            raise CompressionError(
                Reason.INVALID_MODEL, f"{option} must be a language of the model's tokenizer, got {got}; it has {known}"
            )
        setattr(tokenizer, attribute, code)
        tokenizer.init_kwargs[attribute] = code
    if hasattr(tokenizer, "tgt_lang"):
        number, written = tokenizer.convert_tokens_to_ids(tokenizer.tgt_lang), tokenizer(text_target="a")["input_ids"]
        if written[0] == number:  # as of mBART-50 and NLLB: the first token that is written
            model.generation_config.forced_bos_token_id = number
        else:  # as of mBART: the start token
            model.generation_config.decoder_start_token_id = model.config.decoder_start_token_id = number
