"""Sequence classification and regression: one text or two, one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mvprune.artifact.class_results import ClassResult
from mvprune.data.kinds.base import Task
from mvprune.data.kinds.classification.labelled import OF_SCORES
from mvprune.data.kinds.classification.weights import class_weights
from mvprune.data.loading import ClassificationData, Split
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Field, Input, Objective
from mvprune_core.tasks.batching import Examples, Indices, add_inputs, pad_token, tokenize
from mvprune_core.tasks.chance import SanityFailure, check_classes, check_values
from mvprune_core.tasks.class_metrics import class_metrics, confusion, scores_of_classes
from mvprune_core.tasks.classes import describe_classes, model_classes
from mvprune_core.tasks.heads import PROBABILITY, REGRESSION, is_probability
from mvprune_core.tasks.label_scale import LabelScale
from mvprune_core.tasks.losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError, WeightedCrossEntropy
from mvprune_core.tasks.metrics import MODULES, compute_metrics
from mvprune_core.tasks.outputs import ClassLogits, DistilledOutput, Values
from mvprune_core.tasks.passes import forward_passes
from mvprune_core.tasks.resampling import SampleMetric, sample_metric, sample_score_metric


@dataclass(frozen=True)
class Texts(Objective):
    """The base of kinds whose inputs are one text or two, with a row of logits for each."""

    data: ClassificationData
    imports: ClassVar[tuple[str, ...]] = MODULES
    unlabelled: ClassVar[Any] = 0
    """The label of a text to predict for."""

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        return _examples([split for _, split in self._validation], {}, tokenizer, config, max_length)

    def measure(self, predictions: Any) -> dict[str, float]:
        metrics: dict[str, float] = {}
        first = 0
        for suffix, split in self._validation:
            found = self._measured(predictions[first : first + len(split)], np.array(split.labels))
            metrics |= {name + suffix: value for name, value in found.items()}
            first += len(split)
        return metrics

    def _measured(self, predictions: NDArray[Any], references: NDArray[Any]) -> dict[str, float]:
        """The metrics of one split, by the names without its ending."""
        return compute_metrics(self.data.task.split_metrics, predictions, references)

    def sample_metric(self, predictions: Any) -> tuple[int, SampleMetric] | None:
        labels = np.array(self.data.validation.labels)
        found = sample_metric(self.data.task.primary_metric, predictions[: len(labels)], labels)
        return None if found is None else (len(labels), found)

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        one, two = Field("text"), Field("text_pair", required=task.hub_id is not None)
        return (one,) if task.hub_id is not None and len(task.text_columns) == 1 else (one, two)

    @classmethod
    def of_inputs(cls, task: Task, labels: tuple[str, ...], inputs: Sequence[Input]) -> Self:
        pairs = [given["text_pair"] for given in inputs] if "text_pair" in inputs[0] else None
        split = Split([given["text"] for given in inputs], pairs, [cls.unlabelled] * len(inputs))
        return cls(ClassificationData(task, labels, Split([], None, []), split))

    def logits(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Tensor:
        """The model's logits for the texts of the validation split, shape (texts, classes), in the model's order.

        Args:
            model: the model, left in evaluation mode.
            examples: of `validation_examples`.
            device: where the model is.
            group: the ranks, which share the forward passes.
        """
        config: Any = model.config
        logits = torch.empty(len(examples), config.num_labels)

        def read(_: Indices, output: Any) -> Tensor:
            found: Tensor = output.logits.float().cpu()
            return found

        for indices, some in forward_passes(model, examples, device, read, group=group):
            logits[torch.from_numpy(indices)] = some
        return logits

    def _training_examples(self, targets: NDArray[Any], tokenizer: Any, config: Any, max_length: int) -> Examples:
        return _examples([self.data.train], {"labels": torch.from_numpy(targets)}, tokenizer, config, max_length)

    @property
    def _validation(self) -> list[tuple[str, Split]]:
        """The splits to evaluate on, in the order of the examples, with the endings of their metrics' names."""
        others = [(f"_{name}", split) for name, split in self.data.more_validation.items()]
        return [("", self.data.validation), *others]


@dataclass(frozen=True)
class Classification(Texts):
    """One class for a text or for a pair of texts. A fine-tuned model keeps the order of classes in its config."""

    kind: ClassVar[str] = "classification"
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (ClassLogits(),)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.data.labels

    def loss(self, config: Any) -> Loss:
        if not (given := self.options.get("class_weights")):
            return CrossEntropy()
        counts = np.bincount(np.array(self.data.train.labels), minlength=len(self.classes))
        weights = np.empty(len(self.classes))
        weights[model_classes(config, self.classes)] = class_weights(given, counts.tolist())
        return WeightedCrossEntropy(tuple(weights.tolist()))

    def configure(self, config: Any) -> bool:
        config.problem_type = "single_label_classification"
        return describe_classes(config, self.classes)

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        numbers = model_classes(config, self.classes)[np.array(self.data.train.labels)]
        return self._training_examples(numbers, tokenizer, config, max_length)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> NDArray[Any]:
        return self.logits(model, examples, device, group).numpy()

    def _measured(self, predictions: NDArray[Any], references: NDArray[Any]) -> dict[str, float]:
        return class_metrics(self.data.task.split_metrics, predictions, references)

    def sample_metric(self, predictions: NDArray[Any]) -> tuple[int, SampleMetric] | None:
        primary, labels = self.data.task.primary_metric, np.array(self.data.validation.labels)
        if primary in OF_SCORES:
            return len(labels), sample_score_metric(primary, *scores_of_classes(predictions[: len(labels)], labels))
        return super().sample_metric(predictions.argmax(axis=1))

    def by_class(self, predictions: NDArray[Any]) -> tuple[ClassResult, ...]:
        labels = np.array(self.data.validation.labels)
        counts = confusion(predictions[: len(labels)].argmax(axis=1), labels, len(self.classes))
        return ClassResult.of_confusion(self.classes, counts.tolist())

    def logits(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Tensor:
        """The logits in the data's order of classes; see `Texts`."""
        order = torch.from_numpy(model_classes(model.config, self.classes))
        return super().logits(model, examples, device, group)[:, order]

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of the usual class, and of class 1, which F1 is about."""
        usual = int(np.bincount(np.array(self.data.validation.labels)).argmax())
        return [self.measure(np.tile(np.eye(len(self.classes))[one], (len(examples), 1))) for one in sorted({usual, 1})]

    def sanity_check(self, predictions: NDArray[Any]) -> SanityFailure | None:
        split = self.data.validation
        return check_classes(predictions[: len(split)].argmax(axis=1), np.array(split.labels), self.classes)

    def check_teacher(
        self, logits: Mapping[str, Tensor], examples: Examples, which: Indices, names: Sequence[str]
    ) -> SanityFailure | None:
        return check_classes(logits["logits"].numpy().argmax(axis=1), examples.targets["labels"].numpy()[which], names)

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        answers = []
        for row in self.logits(model, examples, device).softmax(dim=1).tolist():
            scores = dict(zip(self.classes, row, strict=True))
            label = max(scores, key=scores.__getitem__)
            answers.append({"label": label, "score": scores[label], "scores": scores})
        return answers


@dataclass(frozen=True)
class Regression(Texts):
    """One value for a text or for a pair of texts: the model's output, or its sigmoid (`is_probability`)."""

    kind: ClassVar[str] = "regression"
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (Values(),)

    def loss(self, config: Any) -> Loss:
        return BinaryCrossEntropy() if is_probability(config) else SquaredError()

    def label_scale(self, config: Any) -> LabelScale | None:
        return None if is_probability(config) else LabelScale.of(self.data.train.labels)

    def configure(self, config: Any) -> bool:
        fits = bool(config.num_labels == 1)
        keeps = is_probability(config) and self._has_probabilities
        config.num_labels = 1
        # Without a problem_type, transformers trains one output with squared errors.
        config.problem_type = PROBABILITY if keeps else REGRESSION
        return fits

    def flaw_of_teacher(self, teacher: Any, config: Any) -> tuple[str, str] | None:
        if is_probability(teacher) == is_probability(config):
            return None
        return (
            "have outputs that mean the same as the model's, both values or both logits of probabilities",
            f"the problem_type {teacher.problem_type}, and {config.problem_type} of the model; a model with one label "
            "(id2label) and without a problem_type in its config.json has logits of probabilities",
        )

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        values = np.array(self.data.train.labels).astype(np.float32)
        if is_probability(config):
            values = values[:, None]  # one label of several
        return self._training_examples(values, tokenizer, config, max_length)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> NDArray[Any]:
        return self._values(model, examples, device, group).numpy()

    def _values(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Tensor:
        logits = self.logits(model, examples, device, group)[:, 0]
        return logits.sigmoid() if is_probability(model.config) else logits

    @property
    def _has_probabilities(self) -> bool:
        splits = (self.data.train, *(split for _, split in self._validation))
        return all(0 <= value <= 1 for split in splits for value in split.labels)

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of the mean value, with which nothing correlates."""
        return [self.measure(np.full(len(examples), np.mean(self.data.validation.labels)))]

    def sanity_check(self, predictions: NDArray[Any]) -> SanityFailure | None:
        split = self.data.validation
        return check_values(predictions[: len(split)], np.array(split.labels))

    def check_teacher(
        self, logits: Mapping[str, Tensor], examples: Examples, which: Indices, names: Sequence[str]
    ) -> SanityFailure | None:
        return check_values(logits["logits"][:, 0].numpy(), examples.targets["labels"].numpy()[which].ravel())

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        return [{"value": value} for value in self._values(model, examples, device).tolist()]

    @classmethod
    def flaw_of_head(cls, names: Sequence[str]) -> str:
        return "" if len(names) == 1 else f"must have one output for a value, got {len(names)} classes"


def _examples(
    splits: Sequence[Split], targets: Mapping[str, Tensor], tokenizer: Any, config: Any, max_length: int
) -> Examples:
    inputs: dict[str, list[NDArray[np.int32]]] = {}
    for split in splits:
        texts, pairs = split.texts, split.pairs
        if config.is_encoder_decoder:
            # BART and T5 classify by the end token, and raise where examples have different numbers of them. T5's
            # vocabulary has it as a word too, so no option of the tokenizer keeps it out of a text. A tokenizer may
            # have another name for it: in those of Chinese BARTs it is the separator.
            end = tokenizer.convert_ids_to_tokens(config.eos_token_id)
            texts = _without(end, texts)
            pairs = None if pairs is None else _without(end, pairs)
        for encodings in tokenize(tokenizer, texts, pairs, truncation=True, max_length=max_length):
            add_inputs(inputs, tokenizer, encodings)
    return Examples(inputs, targets, pad_token(tokenizer))


def _without(token: str, texts: Sequence[str]) -> list[str]:
    """The texts with blanks between the characters of a special token, so that it is read as characters."""
    return [text.replace(token, " ".join(token)) for text in texts]
