"""Token classification: a tag for each word of a sentence, as for named entities.

The first token of a word carries its tag, the others none (Devlin et al. 2019, https://arxiv.org/abs/1810.04805,
section 5.3). A sentence longer than the model's input is cut into several, so that every word is tagged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mvprune.data.kinds.base import Task
from mvprune.data.kinds.token_classification.tagschemes import OUTSIDE
from mvprune.data.loading import TaggedSplit, TokenClassificationData
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Field, Input, Objective
from mvprune_core.tasks.batching import IGNORED, Examples, Indices, add_inputs, check_offsets, pad_token, tokenize
from mvprune_core.tasks.chance import SanityFailure, check_classes
from mvprune_core.tasks.classes import describe_classes, model_classes
from mvprune_core.tasks.losses import CrossEntropy, Loss
from mvprune_core.tasks.metrics import entity_counts, entity_metrics
from mvprune_core.tasks.outputs import DistilledOutput, TokenLogits
from mvprune_core.tasks.passes import forward_passes
from mvprune_core.tasks.resampling import SampleMetric, added

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class TokenClassification(Objective):
    """A tag for each word of a sentence. A fine-tuned model keeps the order of tags in its config."""

    data: TokenClassificationData
    kind: ClassVar[str] = "token-classification"
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (TokenLogits(),)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.data.labels

    def loss(self, config: Any) -> Loss:
        return CrossEntropy()

    def configure(self, config: Any) -> bool:
        return describe_classes(config, self.data.labels)

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        pieces = _checked(_pieces(self.data.train.words, tokenizer, max_length))
        classes = model_classes(config, self.data.labels).astype(np.int32)
        tags = [classes[sentence] for sentence in self.data.train.tags]
        labels = [
            np.where(words >= 0, tags[number][words], np.int32(IGNORED))
            for (number,), words in zip(pieces.notes["sentence"], pieces.notes["word"], strict=True)
        ]
        return Examples({**pieces.inputs, "labels": labels}, {}, pieces.pad_token)

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        pieces = _pieces(self.data.validation.words, tokenizer, max_length)
        # Inputs without tags are answered, those that the tokenizer leaves nothing of too.
        return _checked(pieces) if self.data.validation.tags else pieces

    def predict(
        self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE
    ) -> list[list[str]]:
        """The most likely tag of each word of the validation sentences."""
        names = self.data.labels
        classes = torch.from_numpy(model_classes(model.config, names))
        # A word that the tokenizer drops is outside of all entities.
        nothing = next((number for number, name in enumerate(names) if name.upper() == OUTSIDE), 0)
        predictions = [np.full(len(words), nothing) for words in self.data.validation.words]

        def read(_: Indices, output: Any) -> NDArray[np.int64]:
            # Column i of these logits is the tag that the data numbers i.
            best: NDArray[np.int64] = output.logits.float().cpu()[..., classes].argmax(dim=-1).numpy()
            return best

        passes = forward_passes(model, examples, device, read, group=group) if examples.notes["word"] else ()
        for indices, best in passes:
            for row, index in enumerate(indices):
                words = examples.notes["word"][index]
                first = np.flatnonzero(words >= 0)
                predictions[examples.notes["sentence"][index][0]][words[first]] = best[row, first]
        return [[names[tag] for tag in sentence] for sentence in predictions]

    def measure(self, predictions: list[list[str]]) -> dict[str, float]:
        return entity_metrics(self._counts(predictions).sum(axis=0))

    def sample_metric(self, predictions: list[list[str]]) -> tuple[int, SampleMetric] | None:
        found, name = self._counts(predictions).astype(np.float64), self.data.task.primary_metric
        return len(found), lambda counts: entity_metrics(added(counts, found))[name]

    def _counts(self, predictions: list[list[str]]) -> NDArray[np.int64]:
        names = self.data.labels
        true = [[names[tag] for tag in sentence] for sentence in self.data.validation.tags]
        return entity_counts(predictions, true, names)

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of the usual tag for every word."""
        usual = self.data.labels[int(np.bincount(np.concatenate(self.data.validation.tags)).argmax())]
        return [self.measure([[usual] * len(sentence) for sentence in self.data.validation.tags])]

    def sanity_check(self, predictions: list[list[str]]) -> SanityFailure | None:
        numbers = {name: number for number, name in enumerate(self.data.labels)}
        predicted = np.array([numbers[tag] for sentence in predictions for tag in sentence])
        return check_classes(predicted, np.concatenate(self.data.validation.tags), self.data.labels)

    def check_teacher(
        self, logits: Mapping[str, Tensor], examples: Examples, which: Indices, names: Sequence[str]
    ) -> SanityFailure | None:
        true = np.concatenate([examples.inputs["labels"][int(index)] for index in which])
        labelled = true != IGNORED
        return check_classes(logits["logits"].numpy().argmax(axis=1)[labelled], true[labelled], names)

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        return (Field("text"),)

    @classmethod
    def of_inputs(cls, task: Task, labels: tuple[str, ...], inputs: Sequence[Input]) -> Self:
        split = TaggedSplit([_WORD.findall(given["text"]) for given in inputs], [])
        return cls(TokenClassificationData(task, labels, TaggedSplit([], []), split))

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        tags = self.predict(model, examples, device)
        return [
            {
                "words": [
                    {"word": word[0], "tag": tag, "start": word.start(), "end": word.end()}
                    for word, tag in zip(_WORD.finditer(given["text"]), its_tags, strict=True)
                ]
            }
            for given, its_tags in zip(inputs, tags, strict=True)
        ]


def _pieces(sentences: Sequence[Sequence[str]], tokenizer: Any, max_length: int) -> Examples:
    """Sentences, in as many pieces as their length needs.

    Notes of a piece: `sentence`, its number; `word`, for each token, the number of the word that it is the first token
    of, −1 for other tokens.
    """
    check_offsets(tokenizer)
    options = {
        "truncation": True,
        "max_length": max_length,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    inputs: dict[str, list[NDArray[np.int32]]] = {}
    notes: dict[str, list[NDArray[np.int32]]] = {"sentence": [], "word": []}
    first, sentence, last_word = 0, -1, -1
    for encodings in tokenize(tokenizer, [" ".join(words) for words in sentences], None, **options):
        kept: list[int] = []
        for row, place in enumerate(encodings["overflow_to_sample_mapping"]):
            if first + place != sentence:
                sentence, last_word = first + place, -1
            words = _first_tokens(encodings, row, sentences[sentence], last_word)
            if (words >= 0).any():
                last_word = int(words.max())
                kept.append(row)
                notes["sentence"].append(np.array([sentence], dtype=np.int32))
                notes["word"].append(words)
        add_inputs(inputs, tokenizer, encodings, kept)
        first += encodings["overflow_to_sample_mapping"][-1] + 1
    return Examples(inputs, {}, pad_token(tokenizer), notes)


def _checked(pieces: Examples) -> Examples:
    if not pieces.notes["word"]:
        raise CompressionError(Reason.INVALID_DATASET, "the model's tokenizer leaves nothing of the sentences' words")
    return pieces


def _first_tokens(encodings: Any, row: int, words: Sequence[str], last_word: int) -> NDArray[np.int32]:
    """For each token, the number of the word that it begins, −1 for others; `last_word` and those before are begun."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    spans = np.array(encodings["offset_mapping"][row])
    # By its last character: some tokenizers count the blank before a word to its first token.
    found = np.searchsorted(ends, spans[:, 1] - 1, side="right")
    inside = np.array([part is not None for part in encodings.sequence_ids(row)]) & (spans[:, 1] > spans[:, 0])
    inside &= found < len(words)
    inside[inside] = spans[inside, 1] <= ends[found[inside]]
    begun = np.maximum.accumulate(np.where(inside, found, last_word))
    before = np.concatenate([[last_word], begun[:-1]])
    return np.where(inside & (found > before), found, -1).astype(np.int32)
