"""Sequence classification and regression: one text or two, one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import TaskKind
from mvprune_core.batching import Examples, add_inputs, pad_token, tokenize
from mvprune_core.metrics import compute_metrics
from mvprune_core.tasks.base import forward_passes
from mvprune_core.tasks.chance import Doubt, class_doubt, value_doubt
from mvprune_core.tasks.classes import describe_classes, model_classes


@dataclass(frozen=True)
class Classification:
    """The objective of `ClassificationData`. A fine-tuned model keeps the order of classes in its config."""

    data: ClassificationData

    @property
    def auto_class(self) -> Any:
        return AutoModelForSequenceClassification

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("logits",)

    def configure(self, config: Any) -> bool:
        if self._regression:
            fits = bool(config.num_labels == 1)
            config.num_labels = 1
            config.problem_type = "regression"
            return fits
        config.problem_type = "single_label_classification"
        return describe_classes(config, self.data.labels)

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        labels = np.array(self.data.train.labels)
        targets = labels.astype(np.float32) if self._regression else model_classes(config, self.data.labels)[labels]
        return _examples([self.data.train], {"labels": torch.from_numpy(targets)}, tokenizer, config, max_length)

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        return _examples([split for _, split in self._validation], {}, tokenizer, config, max_length)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device) -> NDArray[Any]:
        logits = self.logits(model, examples, device)
        return (logits[:, 0] if self._regression else logits.argmax(dim=1)).numpy()

    def measure(self, predictions: NDArray[Any]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        first = 0
        for suffix, split in self._validation:
            found = compute_metrics(
                self.data.task.split_metrics, predictions[first : first + len(split)], np.array(split.labels)
            )
            metrics |= {name + suffix: value for name, value in found.items()}
            first += len(split)
        return metrics

    def doubt(self, predictions: NDArray[Any]) -> Doubt | None:
        split = self.data.validation
        predicted, true = predictions[: len(split)], np.array(split.labels)
        return value_doubt(predicted, true) if self._regression else class_doubt(predicted, true, self.data.labels)

    def logits(self, model: nn.Module, examples: Examples, device: torch.device) -> Tensor:
        """What the model says of the texts to evaluate on: (texts, classes) in the data's order; (texts, 1) a value.

        Args:
            model: the model, left in evaluation mode.
            examples: of `validation_examples`.
            device: where the model is.
        """
        config: Any = model.config
        logits = torch.empty(len(examples), config.num_labels)
        for indices, output in forward_passes(model, examples, device):
            logits[torch.from_numpy(indices)] = output.logits.float().cpu()
        return logits if self._regression else logits[:, torch.from_numpy(model_classes(config, self.data.labels))]

    @property
    def _validation(self) -> list[tuple[str, Split]]:
        """The splits to evaluate on, in the order of the examples, with the endings of their metrics' names."""
        others = [(f"_{name}", split) for name, split in self.data.more_validation.items()]
        return [("", self.data.validation), *others]

    @property
    def _regression(self) -> bool:
        return self.data.task.kind is TaskKind.REGRESSION


def _examples(
    splits: Sequence[Split], targets: Mapping[str, Tensor], tokenizer: Any, config: Any, max_length: int
) -> Examples:
    inputs: dict[str, list[NDArray[np.int32]]] = {}
    for split in splits:
        texts, pairs = split.texts, split.pairs
        if config.is_encoder_decoder:
            # BART and T5 read the class off the end token, and refuse examples with different numbers of them. T5's
            # vocabulary has it as a word too, so that no option of the tokenizer keeps it out of a text. A tokenizer
            # may not call it so: that of Chinese BARTs knows it as the separator.
            end = tokenizer.convert_ids_to_tokens(config.eos_token_id)
            texts = _without(end, texts)
            pairs = None if pairs is None else _without(end, pairs)
        for encodings in tokenize(tokenizer, texts, pairs, truncation=True, max_length=max_length):
            add_inputs(inputs, tokenizer, encodings)
    return Examples(inputs, targets, pad_token(tokenizer))


def _without(token: str, texts: Sequence[str]) -> list[str]:
    """The texts with the characters of a special token apart, so that they are characters again."""
    return [text.replace(token, " ".join(token)) for text in texts]
