"""What all kinds of language modelling have in common: perplexity and accuracy over a vocabulary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mvprune.data.loading import PassageData
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.base import Objective
from mvprune_core.tasks.batching import IGNORED, Examples, Indices
from mvprune_core.tasks.passes import forward_passes
from mvprune_core.tasks.resampling import SampleMetric, added

VOCABULARY_BATCH = 8  # logits over a vocabulary are large
_LARGEST_LOSS = 700.0  # its exponential is a finite number


@dataclass(frozen=True)
class LanguageModelling(Objective):
    """The tokens of a text that validation examples note as `label`, −100 where a token is not predicted.

    It has no sanity check: none of tens of thousands of classes is frequent, and their names are the tokenizer's.

    Attributes:
        ahead: how many tokens before a token the logits for it are.
    """

    data: PassageData
    ahead: ClassVar[int] = 0

    def configure(self, config: Any) -> bool:
        return False  # a pretrained head has the right shape, but was not trained on these texts, as the pruned one is

    def predict(
        self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE
    ) -> list[tuple[float, int, int]]:
        """For each batch the sum of the losses, how many tokens are right, and of how many."""

        def read(indices: Indices, output: Any) -> tuple[float, int, int]:
            labels = [examples.notes["label"][index] for index in indices]
            places = [np.flatnonzero(row != IGNORED) for row in labels]
            rows = np.repeat(np.arange(len(labels)), [len(row) for row in places])
            columns = np.concatenate(places) - self.ahead
            logits = output.logits[torch.from_numpy(rows), torch.from_numpy(columns)].float()
            expected = np.concatenate([row[place] for row, place in zip(labels, places, strict=True)])
            target = torch.from_numpy(expected).long().to(logits.device)
            loss = cross_entropy(logits, target, reduction="sum").item()
            return loss, int((logits.argmax(dim=-1) == target).sum()), len(expected)

        passes = forward_passes(model, examples, device, read, batch_size=VOCABULARY_BATCH, group=group)
        return [found for _, found in passes]

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """Those of the frequencies of the predicted tokens, whatever the text."""
        predicted = np.concatenate([labels[labels != IGNORED] for labels in examples.notes["label"]])
        counts = np.unique(predicted, return_counts=True)[1]
        loss = -float(counts @ np.log(counts / len(predicted)))
        return [self.measure([(loss, int(counts.max()), len(predicted))])]

    def measure(self, predictions: list[tuple[float, int, int]]) -> dict[str, float]:
        return _metrics(*(sum(each) for each in zip(*predictions, strict=True)))

    def sample_metric(self, predictions: list[tuple[float, int, int]]) -> tuple[int, SampleMetric] | None:
        """Of batches: neighbouring blocks are of one text, and their losses are alike."""
        found, name = np.array(predictions), self.data.task.primary_metric
        return len(found), lambda counts: _metrics(*added(counts, found))[name]


def _metrics(loss: float, right: float, tokens: float) -> dict[str, float]:
    return {"perplexity": math.exp(min(loss / tokens, _LARGEST_LOSS)), "accuracy": right / tokens}
