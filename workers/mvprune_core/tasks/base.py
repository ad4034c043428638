"""What the rest of the core asks of a kind of task, and nothing else."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn

from mvprune_core.batching import Examples

EVALUATION_BATCH = 64


class Objective(Protocol):
    """One kind of task over one data set: which head, which examples, how well a model does."""

    @property
    def auto_class(self) -> Any:
        """The `AutoModelFor…` class that has the head."""

    def configure(self, config: Any) -> bool:
        """Describes the head in `config`. Returns whether the head it described before answers the same question."""

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """The training split, tokenised, with targets."""

    def evaluate(self, model: nn.Module, tokenizer: Any, max_length: int, device: torch.device) -> dict[str, float]:
        """The task's metrics over the validation split. Leaves the model in evaluation mode."""
