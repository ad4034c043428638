"""Short runs of the training loop, on a tiny model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tests.unit.core.masks import new_masks
from torch import Tensor, nn

from mvprune.data.tasks import get_task
from mvprune_core import METHODS, OBERT, Callback, Method, Training
from mvprune_core.base.settings import Settings
from mvprune_core.models.loading import Loaded, find_model, load_model
from mvprune_core.pruning.selectors import WEIGHTS, Selector
from mvprune_core.tasks import Objective
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.losses import CrossEntropy
from mvprune_core.training.curves import Curve
from mvprune_core.training.loop import Trainer
from mvprune_core.training.masking import Masks
from mvprune_core.training.optimization import build_optimizer
from mvprune_core.training.precision import with_length_buckets

SHORT = Training(max_steps=12, batch_size=32, learning_rate=5e-3)


class Recorder(Callback):
    """Notes the phases of a run and its evaluations."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.evaluations: list[tuple[str, int, dict[str, float]]] = []

    def on_phase(self, name: str) -> None:
        self.phases.append(name)

    def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        self.evaluations.append((phase, step, dict(metrics)))


def method_of(name: str | None) -> Method | None:
    """A method by its name; obert samples 256 gradients by default, which a short run does not need."""
    if name == "obert":
        return OBERT(gradients=4)
    return METHODS[name]() if name else None


def settings(**changes: Any) -> Settings:
    usual = {"max_steps": 12, "batch_size": 16, "learning_rate": 1e-3, "dropout": True}
    return Training(**(usual | changes)).settings(get_task("sst2"))


def run(
    loaded: Loaded,
    objective: Objective,
    chosen: Settings,
    method: Method | None,
    selector: Selector = WEIGHTS,
    **options: Any,
) -> tuple[Masks | None, int]:
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    total = chosen.total_steps(len(examples))
    masks = None
    if method is not None:
        masks = new_masks(loaded.model, method, density=0.25, total_steps=total, seed=0, selector=selector)
    options |= {"masks": masks, "loss": objective.loss(loaded.config)}
    return masks, trainer(loaded.model, examples, chosen, **options).run()


def trainer(model: nn.Module, examples: Examples, chosen: Settings, **options: Any) -> Trainer:
    """A trainer of the phase "pruning", whatever it trains."""
    return Trainer(
        **{"callback": Callback(), "loss": CrossEntropy(), "curve": Curve("pruning", chosen.total_steps(len(examples)))}
        | options,
        model=model,
        optimizer=build_optimizer(model, chosen, options.get("masks")),
        examples=with_length_buckets(examples, chosen.precision),
        settings=chosen,
        seed=0,
    )


_READ: dict[Path, tuple[Objective, Loaded]] = {}  # the model of one test


def with_dropout(folder: Path, objective: Objective) -> Loaded:
    """The model in a folder, which is read once for an objective."""
    if folder not in _READ or _READ[folder][0] is not objective:
        _READ.clear()
        _READ[folder] = objective, load_model(find_model(folder, None), objective, seed=0)
    loaded = copy.deepcopy(_READ[folder][1])
    for module in loaded.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    return loaded


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())
