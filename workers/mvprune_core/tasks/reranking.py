"""Reranking by a cross-encoder: a score for a query with a document, compared among the documents of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mvprune.common.excerpts import listed
from mvprune.data.kinds.base import Task
from mvprune.data.kinds.classification.labelled import Split
from mvprune.data.kinds.reranking import compared_rows, measured_queries, queries_of
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Field, Input
from mvprune_core.tasks.batching import Examples, Indices
from mvprune_core.tasks.chance import SanityFailure, check_values
from mvprune_core.tasks.classification import Regression
from mvprune_core.tasks.heads import PROBABILITY, REGRESSION, is_probability
from mvprune_core.tasks.label_scale import LabelScale
from mvprune_core.tasks.losses import Loss
from mvprune_core.tasks.outputs import DistilledOutput
from mvprune_core.tasks.ranking import Ranked, means, rank_metrics
from mvprune_core.tasks.relevance import (
    COMPARED,
    GradeCrossEntropy,
    Margins,
    OfBoth,
    Scores,
    are_grades,
    has_grades,
    relevance,
)
from mvprune_core.tasks.resampling import SampleMetric, mean_of

_DRAWS = 20  # orders of the documents at random
_SEED = 0
_ONE_OF_SEVERAL = "single_label_classification"


@dataclass(frozen=True)
class Reranking(Regression):
    """The grade of a document for a query, as a fraction of the highest grade. With one output it is the sigmoid of the
    logit, with binary cross-entropy, or the logit itself where the model's problem_type is regression, with squared
    errors. A model whose classes are grades keeps them, with cross-entropy (see `relevance`). So the outputs of a model
    mean what they meant in pipelines of transformers.

    A student learns the teacher's outputs; with the option `learn_margins` only the differences between two documents
    of a query (`Margins`), and a training example is two documents of a query with different grades.
    """

    kind: ClassVar[str] = "reranking"
    imports: ClassVar[tuple[str, ...]] = ()

    @property
    def outputs(self) -> tuple[DistilledOutput, ...]:  # type: ignore[override]
        return (Margins() if self._learns_margins else Scores(),)

    @property
    def _learns_margins(self) -> bool:
        return bool(self.options.get("learn_margins"))

    def loss(self, config: Any) -> Loss:
        loss = GradeCrossEntropy() if config.num_labels > 1 else super().loss(config)
        return OfBoth(loss) if self._learns_margins else loss

    def label_scale(self, config: Any) -> LabelScale | None:
        return None

    def configure(self, config: Any) -> bool:
        if has_grades(config):
            config.problem_type = _ONE_OF_SEVERAL
            return True
        fits = bool(config.num_labels == 1)
        config.num_labels = 1
        # A forward pass of transformers with labels would change no problem_type to regression.
        config.problem_type = REGRESSION if fits and config.problem_type == REGRESSION else PROBABILITY
        return fits

    def settle(self, model: Any, tokenizer: Any) -> tuple[str, ...]:
        if model.config.num_labels == 1:
            return ()
        highest = model.config.num_labels - 1
        score = "the probability of the second one" if highest == 1 else f"the expected one, divided by {highest}"
        return (f"the model's classes are taken for the grades 0 to {highest}: a score is {score}",)

    def flaw_of_teacher(self, teacher: Any, config: Any) -> tuple[str, str] | None:
        if self._learns_margins:
            return None
        counts = [one.num_labels for one in (teacher, config)]
        if counts[0] == counts[1]:
            return super().flaw_of_teacher(teacher, config)
        return f"have as many outputs as the model, {counts[1]}, unless learn_margins is set", f"{counts[0]}"

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        train = self.data.train
        targets = self._targets(np.array(train.labels, dtype=np.float32), config)
        if not self._learns_margins:
            return self._training_examples(targets, tokenizer, config, max_length)
        rows = np.array(compared_rows(train), dtype=np.int64).ravel()
        pairs = None if train.pairs is None else [train.pairs[row] for row in rows]
        some = Split([train.texts[row] for row in rows], pairs, [train.labels[row] for row in rows])
        compared = replace(self, data=replace(self.data, train=some))
        found = compared._training_examples(targets[rows], tokenizer, config, max_length)
        labels = found.targets["labels"]
        return replace(found, targets={"labels": labels.view(-1, COMPARED, *labels.shape[1:])}, parts=COMPARED)

    def _targets(self, grades: NDArray[np.float32], config: Any) -> NDArray[np.float32]:
        """What the outputs are to be: shares of the highest grade, of classes their probabilities, (rows, classes)."""
        highest = config.num_labels - 1
        shares: NDArray[np.float32] = grades / grades.max()
        if highest == 0:
            return shares[:, None] if is_probability(config) else shares
        if highest == 1:
            return np.stack([1 - shares, shares], axis=1)
        if wrong := sorted({float(grade) for grade in grades if grade > highest or grade % 1}):
            raise CompressionError(
                Reason.INVALID_DATASET,
                f"the labels must be whole numbers from 0 to {highest}, the grades that the model has classes for, got "
                f"{listed([f'{grade:g}' for grade in wrong])}; give a model with one output for other grades",
            )
        return np.eye(highest + 1, dtype=np.float32)[grades.astype(np.int64)]

    def notes_on(self, train: Examples) -> tuple[str, ...]:
        if not self._learns_margins:
            return ()
        queries = queries_of(self.data.train)
        used = {self.data.train.texts[first] for first, _ in compared_rows(self.data.train)}
        rest = f"; {len(queries) - len(used):,} others have one grade only" if len(used) < len(queries) else ""
        return (f"{len(train):,} pairs of documents of {len(used):,} queries are trained on{rest}",)

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> NDArray[Any]:
        return self._relevance(model, examples, device, group).numpy()

    def _relevance(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Tensor:
        return relevance(self.logits(model, examples, device, group))

    def measure(self, predictions: NDArray[Any]) -> dict[str, float]:
        return means({name: self._ranked(predictions)[name] for name in self.data.task.metrics})

    def sample_metric(self, predictions: NDArray[Any]) -> tuple[int, SampleMetric] | None:
        """Of samples of queries."""
        values = self._ranked(predictions)[self.data.task.primary_metric]
        return len(values), mean_of(values)

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """The mean over orders at random: a constant score gives no order."""
        draw = np.random.default_rng(_SEED)
        found = [self.measure(draw.random(len(self.data.validation))) for _ in range(_DRAWS)]
        return [{name: float(np.mean([one[name] for one in found])) for name in found[0]}]

    def sanity_check(self, predictions: NDArray[Any]) -> SanityFailure | None:
        return check_values(predictions, np.array(self.data.validation.labels))

    def check_teacher(
        self, logits: Mapping[str, Tensor], examples: Examples, which: Indices, names: Sequence[str]
    ) -> SanityFailure | None:
        scores = relevance(logits["logits"])
        labels = examples.targets["labels"][torch.from_numpy(which)].view(len(scores), -1)
        if labels.shape[1] > 1:  # probabilities of grades
            labels = labels @ torch.arange(labels.shape[1], dtype=labels.dtype)[:, None]
        return check_values(scores.numpy(), labels[:, 0].numpy())

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        return (Field("query"), Field("document"))

    @classmethod
    def of_inputs(cls, task: Task, labels: tuple[str, ...], inputs: Sequence[Input]) -> Reranking:
        return super().of_inputs(
            task, labels, [{"text": given["query"], "text_pair": given["document"]} for given in inputs]
        )

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        config: Any = model.config
        logits = self._relevance(model, examples, device)
        is_value = config.num_labels == 1 and not is_probability(config)
        scores = logits if is_value else logits.sigmoid()
        return [{"score": score, "logit": logit} for score, logit in zip(scores.tolist(), logits.tolist(), strict=True)]

    @classmethod
    def flaw_of_head(cls, names: Sequence[str]) -> str:
        flaw = super().flaw_of_head(names)
        return "" if are_grades([*names]) else flaw

    def _ranked(self, predictions: NDArray[Any]) -> Ranked:
        """The metrics of each query that can be measured. Of documents with the same score, those with lower grades
        come first, so that a constant score gains nothing by the order of the data."""
        grades = np.array(self.data.validation.labels)
        top, relevant = [], []
        for rows in map(np.array, measured_queries(self.data.validation)):
            order = np.lexsort((grades[rows], -predictions[rows]))
            top.append(order.tolist())
            relevant.append([(number, float(grade)) for number, grade in enumerate(grades[rows]) if grade > 0])
        return rank_metrics(top, relevant)
