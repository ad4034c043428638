"""What the rest of the core asks of a kind of task, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from mvprune_core.batching import Examples, Indices, evaluation_batches
from mvprune_core.interruption import check_stop
from mvprune_core.tasks.chance import Doubt

EVALUATION_BATCH = 64


class Objective(Protocol):
    """One kind of task over one data set: which head, which examples, how well a model does."""

    @property
    def auto_class(self) -> Any:
        """The `AutoModelFor…` class that has the head."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs that a teacher can teach, logits over the last dimension; () for none."""

    def configure(self, config: Any) -> bool:
        """Describes the head in `config`. Returns whether the head it described before answers the same question."""

    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """The training split, tokenised, with targets: a forward pass over its batches has a loss."""

    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """What is evaluated on, tokenised."""

    def predict(self, model: nn.Module, examples: Examples, device: torch.device) -> Any:
        """What a model makes of `validation_examples`. Leaves it in evaluation mode."""

    def measure(self, predictions: Any) -> dict[str, float]:
        """The task's metrics of what `predict` returned."""

    def doubt(self, predictions: Any) -> Doubt | None:
        """Whether what `predict` returned is no better than chance, or names the wrong classes."""


@contextmanager
def counted(model: nn.Module, tell: Callable[[int], None]) -> Iterator[None]:
    """A context in which `tell` hears after each forward pass how many examples the model has read."""
    done = 0

    def count(_: Any, __: Any, inputs: Mapping[str, Any], ___: Any) -> None:
        nonlocal done
        done += len(inputs["input_ids"])
        tell(done)

    hook = model.register_forward_hook(count, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def forward_passes(
    model: nn.Module,
    examples: Examples,
    device: torch.device,
    batch_size: int = EVALUATION_BATCH,
    only: Indices | None = None,
) -> Iterator[tuple[Indices, Any]]:
    """The model's output for every example once, or for `only` these, without gradients: indices (batch,) and what the
    model returned."""
    model.eval()
    some = np.arange(len(examples)) if only is None else only
    for batch in evaluation_batches(examples.lengths[some], batch_size):
        indices = some[batch]
        check_stop()
        with torch.inference_mode():
            output = model(**examples.batch(indices, device))
        yield indices, output
