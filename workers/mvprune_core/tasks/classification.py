"""Sequence classification and regression: one text or two, one label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForSequenceClassification

from mvprune.data import ClassificationData, Split
from mvprune.tasks import TaskKind
from mvprune_core.batching import Examples, Indices, add_inputs, evaluation_batches, pad_token, tokenize
from mvprune_core.metrics import compute_metrics
from mvprune_core.tasks.base import EVALUATION_BATCH

_GENERIC_LABEL = re.compile(r"LABEL_\d+")


@dataclass(frozen=True)
class Classification:
    """The objective of `ClassificationData`. A fine-tuned model keeps the order of classes in its config."""

    data: ClassificationData

    @property
    def auto_class(self) -> Any:
        return AutoModelForSequenceClassification

    def configure(self, config: Any) -> bool:
        if self._regression:
            fits = bool(config.num_labels == 1)
            config.num_labels = 1
            config.problem_type = "regression"
            return fits
        names, known = self.data.labels, _names(config)
        config.problem_type = "single_label_classification"
        if _translation(names, known) is not None:
            return True
        fits = len(known) == len(names) and all(_GENERIC_LABEL.fullmatch(name) for name in known)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: index for index, name in enumerate(names)}
        return fits

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        labels = np.array(self.data.train.labels)
        targets = labels.astype(np.float32) if self._regression else self._model_classes(config)[labels]
        return _examples(self.data.train, targets, tokenizer, max_length)

    def evaluate(self, model: nn.Module, tokenizer: Any, max_length: int, device: torch.device) -> dict[str, float]:
        references = np.array(self.data.validation.labels)
        examples = _examples(self.data.validation, None, tokenizer, max_length)
        config: Any = model.config
        logits = torch.empty(len(examples), config.num_labels)
        model.eval()
        with torch.inference_mode():
            for indices in evaluation_batches(examples.lengths, EVALUATION_BATCH):
                logits[torch.from_numpy(indices)] = model(**examples.batch(indices, device)).logits.float().cpu()
        if self._regression:
            return compute_metrics(self.data.task.metrics, logits[:, 0].numpy(), references)
        # Column i of these logits is the class that the data numbers i.
        logits = logits[:, torch.from_numpy(self._model_classes(config))]
        return compute_metrics(self.data.task.metrics, logits.argmax(dim=1).numpy(), references)

    @property
    def _regression(self) -> bool:
        return self.data.task.kind is TaskKind.REGRESSION

    def _model_classes(self, config: Any) -> Indices:
        """The model's number of each of the data's classes, shape (classes,)."""
        translation = _translation(self.data.labels, _names(config))
        if translation is None:
            raise ValueError(f"the model's classes are {_names(config)}, those of the data are {self.data.labels}")
        return translation


def _names(config: Any) -> list[str]:
    return [str(config.id2label[index]) for index in sorted(config.id2label)]


def _translation(names: Sequence[str], known: Sequence[str]) -> Indices | None:
    """Where each of `names` stands in `known`, in whatever case; None where they are not the same names."""
    for spell in (str, _plain):
        positions = {spell(name): index for index, name in enumerate(known)}
        if len(positions) == len(known) == len(names) and positions.keys() == {spell(name) for name in names}:
            return np.array([positions[spell(name)] for name in names], dtype=np.int64)
    return None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")


def _examples(split: Split, targets: NDArray[Any] | None, tokenizer: Any, max_length: int) -> Examples:
    inputs: dict[str, list[NDArray[np.int32]]] = {}
    for encodings in tokenize(tokenizer, split.texts, split.pairs, truncation=True, max_length=max_length):
        add_inputs(inputs, tokenizer, encodings)
    labels = {} if targets is None else {"labels": torch.from_numpy(targets)}
    return Examples(inputs, labels, pad_token(tokenizer))
