"""Reranking by a cross-encoder: one logit for a query with a document, compared among the documents of a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mvprune.data.kinds.base import Task
from mvprune.data.kinds.reranking import measured_queries
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Answer, Field, Input
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.chance import SanityFailure, check_values
from mvprune_core.tasks.classification import Regression
from mvprune_core.tasks.heads import PROBABILITY, REGRESSION, is_probability
from mvprune_core.tasks.label_scale import LabelScale
from mvprune_core.tasks.ranking import Ranked, means, rank_metrics
from mvprune_core.tasks.resampling import SampleMetric, mean_of

_DRAWS = 20  # orders of the documents at random
_SEED = 0


@dataclass(frozen=True)
class Reranking(Regression):
    """The grade of a document for a query, as a fraction of the highest grade: the sigmoid of the logit, with binary
    cross-entropy, or the logit itself where the model's problem_type is regression, with squared errors. So the scores
    of a model with one output mean what they meant in pipelines of transformers.

    A student learns the teacher's logits by squared errors, so that the margins between its documents become the
    teacher's; MarginMSE (Hofstätter et al. 2020, https://arxiv.org/abs/2010.02666) learns these alone.
    """

    kind: ClassVar[str] = "reranking"
    imports: ClassVar[tuple[str, ...]] = ()

    def label_scale(self, config: Any) -> LabelScale | None:
        return None

    def configure(self, config: Any) -> bool:
        fits = bool(config.num_labels == 1)
        config.num_labels = 1
        # A forward pass of transformers with labels would change no problem_type to regression.
        config.problem_type = REGRESSION if fits and config.problem_type == REGRESSION else PROBABILITY
        return fits

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        grades = np.array(self.data.train.labels, dtype=np.float32)
        shares = grades / grades.max()
        return self._training_examples(
            shares[:, None] if is_probability(config) else shares, tokenizer, config, max_length
        )

    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> NDArray[Any]:
        return self.logits(model, examples, device, group)[:, 0].numpy()

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
        logits = torch.from_numpy(self.predict(model, examples, device))
        scores = logits.sigmoid() if is_probability(model.config) else logits
        return [{"score": score, "logit": logit} for score, logit in zip(scores.tolist(), logits.tolist(), strict=True)]

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
