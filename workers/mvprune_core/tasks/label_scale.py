"""The scale of labels that are values: training takes them in standard deviations from their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from mvprune_core.tasks.losses import Batch, Loss


@dataclass(frozen=True)
class LabelScale:
    """Mean and standard deviation of the training labels; the deviation is above 0."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, labels: Sequence[float]) -> LabelScale | None:
        """None where the labels are alike, as far as float32 tells them apart."""
        values = np.array(labels, dtype=np.float64)
        if np.ptp(values.astype(np.float32)) == 0:
            return None
        return cls(float(values.mean()), float(values.std()))

    def standardised(self, values: Tensor) -> Tensor:
        """Values in the scale of the data → in standard deviations from the mean; any shape."""
        return (values - self.mean) / self.deviation


@dataclass(frozen=True)
class StandardisedLoss(Loss):
    """A loss of standardised labels, for a model whose outputs are standardised too."""

    loss: Loss
    scale: LabelScale

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        return self.loss(output, {**batch, "labels": self.scale.standardised(batch["labels"])})
