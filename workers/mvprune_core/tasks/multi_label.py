"""Multi-label classification: a logit for each label, and the threshold of its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mvprune.artifact.class_results import ClassResult
from mvprune.data.kinds.classification.weights import positive_weights
from mvprune.data.loading import Split
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Input
from mvprune_core.tasks.batching import Examples, Indices
from mvprune_core.tasks.chance import SanityFailure, check_labels
from mvprune_core.tasks.classes import describe_classes, model_classes
from mvprune_core.tasks.classification import Texts
from mvprune_core.tasks.label_metrics import belongs, best_thresholds, label_counts, label_metrics, sample_label_metric
from mvprune_core.tasks.losses import BinaryCrossEntropy, Loss
from mvprune_core.tasks.outputs import DistilledOutput, LabelLogits
from mvprune_core.tasks.resampling import SampleMetric

THRESHOLDS = "label_thresholds"
"""The key of a config with the thresholds of its classes, a list of probabilities in the order of the logits."""
PROBLEM = "multi_label_classification"


@dataclass(frozen=True)
class Scores:
    """A model's predictions.

    Attributes:
        logits: shape (texts, labels).
        thresholds: the probabilities from which on a label belongs to a text, shape (labels,); None: not chosen yet.
    """

    logits: NDArray[Any]
    thresholds: NDArray[Any] | None


@dataclass(frozen=True)
class MultiLabelClassification(Texts):
    """Any of several labels for a text or for a pair of texts.

    The thresholds of answers are `thresholds`, in the order of the data's labels, where there are some; else those of
    the model's config, or the one that is given; else those that fit the validation examples best.
    """

    thresholds: tuple[float, ...] = ()
    kind: ClassVar[str] = "multi-label"
    unlabelled: ClassVar[Any] = ()
    outputs: ClassVar[tuple[DistilledOutput, ...]] = (LabelLogits(),)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.data.labels

    def loss(self, config: Any) -> Loss:
        if not (given := self.options.get("class_weights")):
            return BinaryCrossEntropy()
        weights = np.empty(len(self.classes))
        weights[model_classes(config, self.classes)] = positive_weights(
            given, self._truth(self.data.train).sum(axis=0).tolist(), len(self.data.train)
        )
        return BinaryCrossEntropy(tuple(weights.tolist()))

    def configure(self, config: Any) -> bool:
        was = config.problem_type
        config.problem_type = PROBLEM
        if hasattr(config, THRESHOLDS):  # of other data
            delattr(config, THRESHOLDS)
        return describe_classes(config, self.classes) and was == PROBLEM

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        targets = np.zeros((len(self.data.train), len(self.classes)), dtype=np.float32)
        targets[:, model_classes(config, self.classes)] = self._truth(self.data.train)
        return self._training_examples(targets, tokenizer, config, max_length)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Scores:
        config: Any = model.config
        order = model_classes(config, self.classes)
        logits = self.logits(model, examples, device, group).numpy()[:, order]
        return Scores(logits, self._given(config, order))

    def _given(self, config: Any, order: Indices) -> NDArray[Any] | None:
        if self.thresholds:
            return np.array(self.thresholds)
        if (kept := getattr(config, THRESHOLDS, None)) is not None:
            return np.array(kept, dtype=np.float64)[order]
        given = self.options.get("threshold")
        return None if given is None else np.full(len(order), float(given))

    def fixed(self, predictions: Scores) -> Self:
        return replace(self, thresholds=tuple(self._thresholds(predictions).tolist()))

    def keep(self, config: Any, predictions: Scores) -> tuple[str, ...]:
        thresholds = self._thresholds(predictions)
        values = np.empty(len(self.classes))
        values[model_classes(config, self.classes)] = thresholds
        setattr(config, THRESHOLDS, values.tolist())
        if predictions.thresholds is not None:
            return ()
        tested = getattr(self.data, "test", None) is not None
        remedy = "the test metrics are with the same thresholds" if tested else "--test FILE measures them on others"
        return (f"the thresholds of the labels are those with the best F1 on the validation examples; {remedy}",)

    def measure(self, predictions: Scores) -> dict[str, float]:
        truth = self._truth(self.data.validation)
        return label_metrics(self.data.task.metrics, predictions.logits, self._thresholds(predictions), truth)

    def sample_metric(self, predictions: Scores) -> tuple[int, SampleMetric] | None:
        truth = self._truth(self.data.validation)
        thresholds = self._thresholds(predictions)
        found = sample_label_metric(self.data.task.primary_metric, predictions.logits, thresholds, truth)
        return None if found is None else (len(truth), found)

    def by_class(self, predictions: Scores) -> tuple[ClassResult, ...]:
        said = belongs(predictions.logits, self._thresholds(predictions))
        counts = label_counts(said, self._truth(self.data.validation)).sum(axis=0).tolist()
        return tuple(
            ClassResult(name, true, said, right) for name, (right, said, true) in zip(self.classes, counts, strict=True)
        )

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of no label, and of the labels that are at least so frequent."""
        truth = self._truth(self.data.validation)
        often, half = truth.mean(axis=0), np.full(len(self.classes), 0.5)
        answers = (often >= least for least in (*np.unique(often), np.inf))
        return [self.measure(Scores(np.tile(np.where(one, 1.0, -1.0), (len(truth), 1)), half)) for one in answers]

    def sanity_check(self, predictions: Scores) -> SanityFailure | None:
        return check_labels(predictions.logits, self._truth(self.data.validation), self.classes)

    def check_teacher(
        self, logits: Mapping[str, Tensor], examples: Examples, which: Indices, names: Sequence[str]
    ) -> SanityFailure | None:
        return check_labels(logits["logits"].numpy(), examples.targets["labels"].numpy()[which] > 0, names)

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        found = self.predict(model, examples, device)
        thresholds = np.full(len(self.classes), 0.5) if found.thresholds is None else found.thresholds
        probabilities = torch.from_numpy(found.logits).sigmoid().tolist()
        said = belongs(found.logits, thresholds).tolist()
        return [
            {
                "labels": [name for name, is_said in zip(self.classes, row, strict=True) if is_said],
                "scores": dict(zip(self.classes, scores, strict=True)),
            }
            for row, scores in zip(said, probabilities, strict=True)
        ]

    @classmethod
    def flaw_of_head(cls, names: Sequence[str]) -> str:
        return "" if len(names) > 1 else f"must have an output for each of several labels, got {len(names)}"

    def _thresholds(self, predictions: Scores) -> NDArray[Any]:
        if predictions.thresholds is not None:
            return predictions.thresholds
        return best_thresholds(predictions.logits, self._truth(self.data.validation))

    def _truth(self, split: Split) -> NDArray[np.bool_]:
        """Which labels the texts have, shape (texts, labels)."""
        truth = np.zeros((len(split), len(self.classes)), dtype=bool)
        for row, numbers in zip(truth, split.labels, strict=True):
            row[np.array(numbers, dtype=np.intp)] = True
        return truth
