"""Embeddings: the vector of a text, which a pruned model learns from the given one.

The pruned model learns the given model's vectors of plain texts, without labels, and so stays in the space of that
model: vectors that the given model made, such as those of an index, can be compared with its own (Vujanic and
Rueckstiess 2025, LEAF, https://arxiv.org/abs/2509.12539, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mvprune.artifact.vectors import add_vectors, sentence_embedding_of
from mvprune.data.kinds.base import Task
from mvprune.data.kinds.embedding.texts import EmbeddingData, Judgements, PlainTexts, ScoredPairs
from mvprune.data.textfiles import DataError
from mvprune.sources.references import InvalidReference
from mvprune.sources.sentence_transformers import (
    DOCUMENT,
    KEY,
    QUERY,
    SentenceEmbedding,
    read_sentence_embedding,
)
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Field, Input, Objective
from mvprune_core.tasks.batching import Examples, Indices, add_inputs, pad_token, tokenize
from mvprune_core.tasks.contrastive import CoSent, InBatchNegatives, MarginMse
from mvprune_core.tasks.losses import Loss, RandomDirection
from mvprune_core.tasks.metrics import MODULES, compute_metrics
from mvprune_core.tasks.outputs import DistilledOutput, Vectors
from mvprune_core.tasks.passes import forward_passes
from mvprune_core.tasks.ranking import means, rank_metrics, search
from mvprune_core.tasks.resampling import SampleMetric, mean_of, sample_metric

_COSINE = "cosine"
_BOTH = "_both"
"""The ending of metrics of the model's queries among its own documents."""

Rows = NDArray[np.float32]
"""Vectors, shape (texts, width)."""


@dataclass(frozen=True)
class Embedding(Objective):
    """The base of all kinds of embeddings.

    Attributes:
        given: the given model's vectors of the validation texts; None: they are not known.
        index: the given model's vectors of all documents, where these are not to be read again; None: they are read.
        named: the name of each validation text's prompt, where each has its own; None: the default one.
    """

    data: EmbeddingData
    given: Rows | None = field(default=None, compare=False, repr=False)
    index: Rows | None = field(default=None, compare=False, repr=False)
    named: tuple[str | None, ...] = ()
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (Vectors(),)
    imports: ClassVar[tuple[str, ...]] = MODULES
    any_can_teach: ClassVar[bool] = True
    unread: ClassVar[tuple[str, ...]] = ("pooler.",)
    is_against_given: ClassVar[bool] = True
    suggestion: ClassVar[str] = "an encoder, such as a BERT or a model of sentence-transformers"

    @property
    def has_labels(self) -> bool:
        return bool(self.options.get("learn_pairs"))

    def loss(self, config: Any) -> Loss:
        linked = self.data.linked
        if not self.has_labels or linked is None:
            return RandomDirection(KEY)
        if len(linked.rows[0]) == len(("text", "text")):
            return CoSent(KEY) if linked.scores else InBatchNegatives(KEY, 2)
        return MarginMse(KEY) if linked.scores else InBatchNegatives(KEY, 3)

    def notes_on(self, train: Examples) -> tuple[str, ...]:
        if self.has_labels or self.data.linked is None:
            return ()
        return (
            f"{len(train):,} texts are trained on, each by itself: which of them belong together is not learned; "
            "--set learn_pairs=true changes it",
        )

    def check_config(self, config: Any) -> None:
        super().check_config(config)
        if config.is_encoder_decoder:
            raise CompressionError(
                Reason.UNSUPPORTED_ARCHITECTURE,
                f"the model must be no encoder-decoder for the task {self.data.task.name}, got {config.model_type}; "
                f"give {self.suggestion}",
            )

    def read_folder(self, folder: Path, config: Any) -> tuple[str, ...]:
        try:
            found = read_sentence_embedding(folder) or SentenceEmbedding.of_config(config)
        except (InvalidReference, ValueError) as error:
            raise CompressionError(Reason.INVALID_MODEL, str(error)) from error
        wanted, notes = self.options.get("pooling"), list[str]()
        if found is None:
            found = SentenceEmbedding(wanted or "mean")
            if wanted is None:
                notes.append(
                    "the model says nothing on how it makes vectors (modules.json): they are the mean of its tokens' "
                    "states, as in sentence-transformers; --set pooling changes it"
                )
        elif wanted not in (None, found.pooling_mode):
            notes.append(f"the pooling is {wanted}, in place of the model's own, {found.pooling_mode}")
            found = replace(found, pooling_mode=wanted)
        try:
            found.prompt(name := self.options.get("prompt_name"))
        except ValueError as error:
            raise CompressionError(Reason.INVALID_MODEL, str(error)) from error
        if found.prompts and name is None and found.default_prompt_name is None and self.data.train:
            known = ", ".join(found.prompts)
            notes.append(
                f"the training texts are read without any of the model's prompts ({known}); --set prompt_name chooses"
            )
        setattr(config, KEY, found.content)
        return tuple(notes)

    def configure(self, config: Any) -> bool:
        return True

    def flaw_of_teacher(self, teacher: Any, config: Any) -> tuple[str, str] | None:
        theirs, own = teacher.hidden_size, config.hidden_size
        return None if theirs == own else (f"make vectors of as many numbers as the model, {own:,}", f"{theirs:,}")

    def settle(self, model: Any, tokenizer: Any) -> tuple[str, ...]:
        if how := sentence_embedding_of(model.config):
            add_vectors(model, how)
        return ()

    def input_length(self, config: Any) -> int:
        return self._prompts(config).max_seq_length or super().input_length(config)

    def config_of_run(self, config: Any, max_length: int) -> Mapping[str, Any]:
        return {KEY: replace(self._prompts(config), max_seq_length=max_length).content}

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        prompts, linked = self._prompts(config), self.data.linked
        prompt = prompts.prompt(self.options.get("prompt_name"))
        if not self.has_labels or linked is None:
            return _examples([(prompt, self.data.train)], tokenizer, max_length)
        before = self._of_columns(prompts, prompt)
        texts = [(before[min(place, 1)], (text,)) for row in linked.rows for place, text in enumerate(row)]
        targets = {"labels": torch.tensor(linked.scores)} if linked.scores else {}
        return replace(_examples(texts, tokenizer, max_length), targets=targets, parts=len(linked.rows[0]))

    def _of_columns(self, prompts: SentenceEmbedding, prompt: str) -> tuple[str, str]:
        """The prompts before the first text of a row and before its others; `prompt` is that of plain texts."""
        return prompt, prompt

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        prompts = self._prompts(config)
        named = prompts.prompt(self.options.get("prompt_name"))
        split = self.data.validation
        if isinstance(split, Judgements):
            query, document = self._of_columns(prompts, named)
            texts = [(query, split.queries), *([(document, split.documents)] if self.index is None else [])]
        elif isinstance(split, ScoredPairs):
            texts = [(named, split.texts), (named, split.others)]
        elif self.named:
            texts = [(_prompt_of(prompts, name), (text,)) for name, text in zip(self.named, split.texts, strict=True)]
        else:
            texts = [(named, split.texts)]
        return _examples(texts, tokenizer, max_length)

    def against(self, given: Any) -> Self:
        return replace(self, given=given)

    @property
    def of_given(self) -> Rows | None:
        return self.given

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Rows:
        rows: dict[int, Rows] = {}
        for indices, found in forward_passes(model, examples, device, _read, group=group):
            rows |= zip(indices.tolist(), found, strict=True)
        return np.stack([rows[number] for number in range(len(examples))])

    def measure(self, predictions: Rows) -> dict[str, float]:
        return {} if self.given is None else {_COSINE: float(_cosines(predictions, self.given).mean())}

    def _sample_cosine(self, predictions: Rows) -> tuple[int, SampleMetric] | None:
        return None if self.given is None else (len(predictions), mean_of(_cosines(predictions, self.given)))

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        return (Field("text"), Field("prompt_name", required=False))

    @classmethod
    def of_inputs(cls, task: Task, labels: tuple[str, ...], inputs: Sequence[Input]) -> Self:
        texts = PlainTexts(tuple(given["text"] for given in inputs))
        return cls(EmbeddingData(task, (), texts), named=tuple(given.get("prompt_name") for given in inputs))

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        vectors = self.predict(model, examples, device)
        return [
            {"embedding": row.tolist(), "tokens": int(count)}
            for row, count in zip(vectors, examples.lengths, strict=True)
        ]

    def _prompts(self, config: Any) -> SentenceEmbedding:
        return sentence_embedding_of(config) or SentenceEmbedding()


@dataclass(frozen=True)
class TextVectors(Embedding):
    """The vectors of plain texts."""

    kind: ClassVar[str] = "embedding"

    def shortened(self, count: int) -> Self:
        texts = PlainTexts(self.data.validation.texts[:count])  # type: ignore[union-attr]
        given = None if self.given is None else self.given[:count]
        return replace(self, data=replace(self.data, validation=texts), given=given)

    def sample_metric(self, predictions: Rows) -> tuple[int, SampleMetric] | None:
        return self._sample_cosine(predictions)


@dataclass(frozen=True)
class Similarity(Embedding):
    """The cosines of pairs of texts, which people have scored."""

    kind: ClassVar[str] = "sentence-similarity"

    @property
    def _pairs(self) -> ScoredPairs:
        split = self.data.validation
        if not isinstance(split, ScoredPairs):
            raise TypeError(f"the validation data must be scored pairs, got {type(split).__name__}")
        return split

    def measure(self, predictions: Rows) -> dict[str, float]:
        scores = np.array(self._pairs.scores)
        return compute_metrics(("spearman", "pearson"), self._alike(predictions), scores) | super().measure(predictions)

    def shortened(self, count: int) -> Self:
        pairs, some = self._pairs, slice(count)
        kept = ScoredPairs(pairs.texts[some], pairs.others[some], pairs.scores[some])
        given = self.given
        if given is not None:
            given = np.concatenate([given[some], given[len(pairs) : len(pairs) + count]])
        return replace(self, data=replace(self.data, validation=kept), given=given)

    def sample_metric(self, predictions: Rows) -> tuple[int, SampleMetric] | None:
        primary = self.data.task.primary_metric
        if primary == _COSINE:
            return self._sample_cosine(predictions)
        found = sample_metric(primary, self._alike(predictions), np.array(self._pairs.scores))
        return None if found is None else (len(self._pairs), found)

    def _alike(self, predictions: Rows) -> Rows:
        return _cosines(predictions[: len(self._pairs)], predictions[len(self._pairs) :])


@dataclass(frozen=True)
class Retrieval(Embedding):
    """The search of queries in documents. Metrics without an ending are those of the model's queries in the given
    model's index of documents; those of `_both` have the model's documents too."""

    kind: ClassVar[str] = "retrieval"

    def _of_columns(self, prompts: SentenceEmbedding, prompt: str) -> tuple[str, str]:
        return prompts.prompts.get(QUERY, prompt), prompts.prompts.get(DOCUMENT, prompt)

    @property
    def _judged(self) -> Judgements:
        split = self.data.validation
        if not isinstance(split, Judgements):
            raise TypeError(f"the validation data must be judgements, got {type(split).__name__}")
        return split

    @property
    def _index(self) -> Rows | None:
        """The given model's vectors of the documents."""
        return self.given[len(self._judged) :] if self.index is None and self.given is not None else self.index

    @property
    def enough_on_the_way(self) -> int | None:
        is_of_queries = not self.data.task.primary_metric.endswith(_BOTH)
        return len(self._judged) if is_of_queries and self._index is not None else None

    def shortened(self, count: int) -> Self:
        judged, given = self._judged, self.given
        kept = Judgements(judged.queries[:count], (), judged.relevant[:count])
        given = None if given is None else given[:count]
        return replace(self, data=replace(self.data, validation=kept), given=given, index=self._index)

    def measure(self, predictions: Rows) -> dict[str, float]:
        judged, count = self._judged, len(self._judged)
        found = super().measure(predictions)
        if self._index is not None:
            found |= means(rank_metrics(search(predictions[:count], self._index), judged.relevant))
        if self.index is None:
            both = rank_metrics(search(predictions[:count], predictions[count:]), judged.relevant)
            found |= means(both, _BOTH)
        return found

    def sample_metric(self, predictions: Rows) -> tuple[int, SampleMetric] | None:
        primary, count = self.data.task.primary_metric, len(self._judged)
        if primary == _COSINE:
            return self._sample_cosine(predictions)
        documents = predictions[count:] if primary.endswith(_BOTH) else self._index
        if documents is None:
            return None
        found = rank_metrics(search(predictions[:count], documents), self._judged.relevant)
        return count, mean_of(found[primary.removesuffix(_BOTH)])


def _read(_: Indices, output: Any) -> Rows:
    found: Rows = output[KEY].float().cpu().numpy()
    return found


def _prompt_of(prompts: SentenceEmbedding, name: str | None) -> str:
    """A prompt that the sender of a text named."""
    try:
        return prompts.prompt(name)
    except ValueError as error:
        raise DataError("prompt_name", str(error).removeprefix("prompt_name ")) from error


def _cosines(one: Rows, other: Rows) -> Rows:
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    found: Rows = (one * other).sum(-1) / np.maximum(lengths, np.finfo(np.float32).tiny)
    return found


def _examples(texts: Sequence[tuple[str, Sequence[str]]], tokenizer: Any, max_length: int) -> Examples:
    """Texts, each after the prompt of its part."""
    inputs: dict[str, list[NDArray[np.int32]]] = {}
    written = [prompt + text for prompt, some in texts for text in some]
    for encodings in tokenize(tokenizer, written, None, truncation=True, max_length=max_length):
        add_inputs(inputs, tokenizer, encodings)
    return Examples(inputs, {}, pad_token(tokenizer))
