"""What the given model predicts, for kinds of tasks whose metrics compare with it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor

from mvprune.artifact import ModelSource
from mvprune_core.base.storage import Cache, identity
from mvprune_core.models.loading import Loaded
from mvprune_core.runs.keys import config_options
from mvprune_core.tasks import Objective
from mvprune_core.tasks.batching import Examples


@dataclass(frozen=True)
class GivenModel:
    """The model of a run before anything is trained.

    Attributes:
        student: the model; it stays on its device, in evaluation mode.
        source: its provenance.
        tokenizer: digest of its tokenizer.
        max_length: tokens of an input.
        device: where it predicts.
        cache: for its predictions.
    """

    student: Loaded
    source: Future[ModelSource]
    tokenizer: str
    max_length: int
    device: torch.device
    cache: Cache

    def measured_by(self, objective: Objective, examples: Examples) -> Objective:
        """The objective, which measures against this model's predictions where its metrics compare with them.

        Args:
            objective: of the examples.
            examples: of its `validation_examples`.
        """
        if not objective.is_against_given:
            return objective
        data, model = objective.data, self.student.model

        def predict() -> dict[str, Tensor]:
            home = next(model.parameters()).device
            try:
                found = objective.predict(model.to(self.device), examples, self.device)
            finally:
                model.to(home)
            return {"given": torch.from_numpy(found)}

        read = [self.source.result().sha256, config_options(self.student.config), self.tokenizer, self.max_length]
        key = identity(read, [data.task.name, data.fingerprint, sorted(objective.options.items())])
        return objective.against(self.cache.tensors("given", key, predict)["given"].numpy())
