"""Fine-tuning: the settings, and the one loop that trains dense and masked models alike."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR

from mvprune.tasks import Task
from mvprune_core.batching import Examples, training_batches
from mvprune_core.callbacks import Callback, Progress
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.masking import Masks, in_block

LEARNING_RATE_WARMUP = 0.1  # fraction of the steps
CLIP_NORM = 1.0
BASE_WIDTH = 768  # of BERT-base, for which the tasks' learning rates are meant
NARROW_LEARNING_RATE = 1e-4  # a pruned MiniLM collapses at 3e-4
_STEPS_BETWEEN_SYNCS = 10  # on a device that works apart from the CPU


@dataclass(frozen=True)
class Training:
    """Fine-tuning settings; None takes the task's default.

    Args:
        max_steps: optimizer steps; given in place of `epochs`.
        epochs: passes over the training data, may be a fraction.
        batch_size: examples a step.
        learning_rate: of the weights (AdamW), reached after a linear warm-up over 10 % of the steps, then falling
            linearly to 0. Models narrower than BERT-base take 3e-4 by default, not the task's rate, which suits
            BERT-base: at 3e-5 a model of width 384 learns next to nothing in a few hundred steps.
        weight_decay: of the weights; never of biases, norms and scores.
        max_length: tokens an input; longer ones are cut.

    Raises:
        ValueError: a setting out of its range, or both `max_steps` and `epochs`.
    """

    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            zero_allowed = field.name == "weight_decay"
            if value is not None and not (0 < value < math.inf or (zero_allowed and value == 0)):
                allowed = "a number of 0 or more" if zero_allowed else "a positive number"
                raise ValueError(f"training.{field.name}: {value} given; {allowed} is allowed")
        if self.max_steps is not None and self.epochs is not None:
            raise ValueError("training: max_steps and epochs are both given; one of them decides the length of the run")

    def settings(self, task: Task, hidden_size: int = BASE_WIDTH) -> Settings:
        """These settings with the defaults of the task, and of the model's width, filled in."""
        usual_rate = task.learning_rate if hidden_size >= BASE_WIDTH else NARROW_LEARNING_RATE
        return Settings(
            max_steps=self.max_steps,
            epochs=self.epochs or task.epochs,
            batch_size=self.batch_size or task.batch_size,
            learning_rate=self.learning_rate or usual_rate,
            weight_decay=task.weight_decay if self.weight_decay is None else self.weight_decay,
            max_length=self.max_length or task.max_length,
        )


@dataclass(frozen=True)
class Settings:
    """Training settings without gaps; `epochs` counts where `max_steps` is None."""

    max_steps: int | None
    epochs: float
    batch_size: int
    learning_rate: float
    weight_decay: float
    max_length: int

    def total_steps(self, examples: int) -> int:
        """Optimizer steps over so many examples an epoch."""
        return self.max_steps or math.ceil(self.epochs * math.ceil(examples / self.batch_size))


def train(
    model: nn.Module,
    examples: Examples,
    settings: Settings,
    *,
    seed: int,
    device: torch.device,
    callback: Callback,
    masks: Masks | None = None,
) -> None:
    """Trains `model` in place, pruning it on the way where `masks` is given.

    AdamW; embeddings are frozen; gradients of weights and of scores are clipped apart, at norm 1. Masks are renewed
    after every step, so that whatever is evaluated next sees the masks of now. The same seed and number of threads give
    the same model.

    Raises:
        CompressionError: NAN_LOSS.
        ValueError: the method's schedule does not fit the number of steps.
    """
    phase = "dense" if masks is None else "pruning"
    total_steps = settings.total_steps(len(examples))
    if masks is not None:
        masks.method.schedule.check(total_steps)
    _freeze_embeddings(model)
    scores = [] if masks is None else masks.scores
    weights = _weights(model, scores)
    groups = _weight_groups(weights, settings) + ([] if masks is None else masks.method.score_groups(scores))
    optimizer = torch.optim.AdamW(groups, fused=True)
    rate = LambdaLR(optimizer, lambda step: rate_factor(step, total_steps))
    batches = training_batches(examples.lengths, settings.batch_size, seed)
    steps_between_syncs = 1 if device.type == "cpu" else _STEPS_BETWEEN_SYNCS
    finite = torch.ones((), dtype=torch.bool, device=device)
    recent_loss, began = math.nan, time.monotonic()
    model.train()
    with _own_random_state(seed, device):
        for step in range(1, total_steps + 1):
            with nullcontext() if masks is None else masks.once_per_pass():
                loss = model(**examples.batch(next(batches), device)).loss
            loss.backward()
            norms = [clip_grad_norm_(parameters, CLIP_NORM) for parameters in (weights, scores) if parameters]
            finite &= torch.stack([loss.detach(), *norms]).isfinite().all()
            if step % steps_between_syncs == 0 or step == total_steps:
                _check_finite(finite, f"step {step} of {total_steps} ({phase})", settings)
                recent_loss = loss.item()
            optimizer.step()
            optimizer.zero_grad()
            rate.step()
            density = 1.0 if masks is None else masks.density
            eta = (time.monotonic() - began) / step * (total_steps - step)
            callback.on_step(Progress(phase, step, total_steps, density, recent_loss, eta))
            if masks is not None:
                masks.follow_schedule(step, total_steps)


def rate_factor(step: int, total_steps: int) -> float:
    """Factor of the learning rates in update `step` (from 0): linear warm-up to 1, then linear decay towards 0."""
    warmup = max(1, round(LEARNING_RATE_WARMUP * total_steps))
    return min((step + 1) / warmup, (total_steps - step) / (total_steps - warmup + 1))


@contextmanager
def _own_random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout draws from `seed`; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _freeze_embeddings(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and not in_block(name):
            module.requires_grad_(False)


def _weights(model: nn.Module, scores: Sequence[Tensor]) -> list[nn.Parameter]:
    apart = {id(score) for score in scores}
    return [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in apart]


def _weight_groups(weights: Sequence[nn.Parameter], settings: Settings) -> list[dict[str, Any]]:
    """Matrices decay; biases and norms, which are vectors, do not."""
    return [
        {"params": params, "lr": settings.learning_rate, "weight_decay": decay}
        for params, decay in (
            ([weight for weight in weights if weight.dim() > 1], settings.weight_decay),
            ([weight for weight in weights if weight.dim() <= 1], 0.0),
        )
        if params
    ]


def _check_finite(finite: Tensor, where: str, settings: Settings) -> None:
    if not finite.item():
        raise CompressionError(
            Reason.NAN_LOSS,
            f"the loss or its gradient is no longer finite at {where}; "
            f"lower the learning rate (now {settings.learning_rate:g}) or that of the scores",
        )
