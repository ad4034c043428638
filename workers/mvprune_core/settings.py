"""Fine-tuning settings: those that a user may set, and those that a run uses."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Literal

from mvprune.common.suggestions import must_be_one_of
from mvprune.data.run_length import Preset, epochs_of, steps_of
from mvprune.data.tasks import Task
from mvprune_core.options import check_choice

Precision = Literal["fp32", "bf16"]

BASE_WIDTH = 768  # of BERT-base, for which the tasks' learning rates are meant
# For narrower models, by their greatest width. A pruned MiniLM (384) collapses at 3e-4; BERT-tiny (128) hardly learns
# at 1e-4.
_NARROW_LEARNING_RATES = {255: 3e-4, BASE_WIDTH - 1: 1e-4}
_MAY_BE_ZERO = ("weight_decay", "lr_warmup", "lr_density_exponent")
_WORDS = ("preset", "precision", "best_metric")
_WHOLE = ("max_steps", "batch_size", "max_length", "accumulation_steps", "evaluate_every", "patience")


@dataclass(frozen=True)
class Training:
    """Fine-tuning settings; None is the task's default.

    Args:
        preset: length of the training, in place of `max_steps` and `epochs`. short: the task's epochs, and more if
            these are less than 3,000 steps: enough for 3,000 steps, but at most 30 epochs, and at least 200 steps.
            paper: the published epochs. long: twice the published epochs, half of them at the final density. See
            `mvprune.data.run_length`.
        max_steps: optimizer steps, in place of `epochs`.
        epochs: passes over the training data, possibly a fraction; by default those of the preset.
        batch_size: examples per step.
        learning_rate: peak learning rate of the weights (AdamW), see lr_warmup. The default is the task's rate, which
            suits BERT-base. For narrower models it is 1e-4, and 3e-4 below a width of 256: at 3e-5 they learn almost
            nothing in a few hundred steps.
        weight_decay: weight decay of matrices; biases, norms and scores have none.
        max_length: tokens per input; longer inputs are cut.
        accumulation_steps: forward passes per batch, for batches that do not fit into memory.
        precision: bf16 runs forward and backward passes under autocast; weights, scores and optimizer states stay fp32.
        train_embeddings: train the embeddings; by default they are frozen, as in the published recipes.
        dropout: use the dropout of the model's config; by default there is none, which is faster and made models of QQP
            more accurate, dense and pruned.
        compile: use torch.compile; needs a C++ compiler on the CPU.
        gradient_checkpointing: recompute activations in the backward pass, to save memory.
        deterministic: raise an error on nondeterministic operations of the device.
        evaluate_every: steps between evaluations; None: evaluate only at the end.
        patience: stop after this many evaluations at the final density without improvement.
        keep_best: the result is the best model that was evaluated at the final density, not the last one.
        best_metric: the metric for patience and keep_best; one of the task's metrics, by default its primary one.
        lr_warmup: fraction of the steps, 0 to 1, in which the learning rates rise linearly to their peak; after that
            they fall linearly to 0.
        lr_density_exponent: x, at least 0: at density v the learning rate of pruned matrices is
            learning_rate · v^(-x). With 1, the default, a step changes the output of a matrix as much as in the dense
            model, although fewer weights contribute (Dey, Bergsma and Hestness 2024,
            https://arxiv.org/abs/2405.15743, table 1). With 0 the rate does not depend on the density, as in published
            movement pruning.

    Raises:
        ValueError: a setting out of range, or contradicting settings.
    """

    preset: Preset = "short"
    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    max_length: int | None = None
    accumulation_steps: int = 1
    precision: Precision = "fp32"
    train_embeddings: bool = False
    dropout: bool = False
    compile: bool = False
    gradient_checkpointing: bool = False
    deterministic: bool = False
    evaluate_every: int | None = None
    patience: int | None = None
    keep_best: bool = False
    best_metric: str | None = None
    lr_warmup: float = 0.1
    lr_density_exponent: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is field.default or field.name in _WORDS:
                continue
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise ValueError(f"training.{field.name} must be true or false, got {value!r}")
                continue
            zero_allowed = field.name in _MAY_BE_ZERO
            is_number = isinstance(value, int | float) and not isinstance(value, bool)  # YAML 1.1 reads 3e-5 as text
            if not is_number or not (0 < value < math.inf or (zero_allowed and value == 0)):
                rule = "a number of at least 0" if zero_allowed else "a positive number"
                raise ValueError(f"training.{field.name} must be {rule}, got {value!r}")
            if field.name in _WHOLE and not isinstance(value, int):
                raise ValueError(f"training.{field.name} must be a whole number, got {value}")
        if self.lr_warmup > 1:
            raise ValueError(f"training.lr_warmup must be a fraction from 0 to 1, got {self.lr_warmup}")
        check_choice("training.precision", self.precision, Precision)
        check_choice("training.preset", self.preset, Preset)
        for name in ("max_steps", "epochs"):
            if self.preset != "short" and getattr(self, name) is not None:
                raise ValueError(f"training.preset must be short with training.{name}, got {self.preset}")
        if self.max_steps is not None and self.epochs is not None:
            raise ValueError("training.max_steps must be given without training.epochs, got both")
        if self.evaluate_every is None and (self.patience is not None or self.keep_best):
            name = "patience" if self.patience is not None else "keep_best"
            raise ValueError(f"training.{name} must be given with training.evaluate_every, got it alone")
        if self.best_metric is not None and self.patience is None and not self.keep_best:
            raise ValueError("training.best_metric must be given with patience or keep_best, got it alone")

    def settings(self, task: Task, hidden_size: int = BASE_WIDTH, examples: int | None = None) -> Settings:
        """These settings with all defaults, which depend on the task, the model's width and the number of examples.

        Raises:
            ValueError: best_metric is not a metric of the task.
        """
        if self.best_metric not in (None, *task.metrics):
            raise ValueError(f"training.best_metric {must_be_one_of(task.metrics, str(self.best_metric))}")
        narrow = (rate for width, rate in _NARROW_LEARNING_RATES.items() if hidden_size <= width)
        usual_rate = next(narrow, task.learning_rate)
        batch_size = self.batch_size or task.batch_size
        usual_epochs = epochs_of(task, None if self.max_steps else examples, batch_size, self.preset)
        given = asdict(self)
        del given["preset"]  # epochs replace it
        given |= {
            "epochs": self.epochs or usual_epochs,
            "batch_size": batch_size,
            "learning_rate": self.learning_rate or usual_rate,
            "weight_decay": task.weight_decay if self.weight_decay is None else self.weight_decay,
            "max_length": self.max_length or task.max_length,
        }
        return Settings(**given)


@dataclass(frozen=True)
class Settings:
    """Training settings with all defaults, see `Training`.

    `epochs` is used if `max_steps` is None. None in another field means never, or the task's primary metric.
    """

    max_steps: int | None
    epochs: float
    batch_size: int
    learning_rate: float
    weight_decay: float
    max_length: int
    accumulation_steps: int
    precision: Precision
    train_embeddings: bool
    dropout: bool
    compile: bool
    gradient_checkpointing: bool
    deterministic: bool
    evaluate_every: int | None
    patience: int | None
    keep_best: bool
    best_metric: str | None
    lr_warmup: float
    lr_density_exponent: float

    def lr_multiplier(self, step: int, total_steps: int, decay: float | None = None) -> float:
        """Factor of the learning rates in update `step` (from 0): linear warmup to 1, then linear decay towards 0.

        Args:
            step: updates done.
            total_steps: updates of the phase.
            decay: replaces the decay, see `Schedule.lr_decay`.
        """
        warmup = max(1, round(self.lr_warmup * total_steps))
        linear = (total_steps - step) / (total_steps - warmup + 1)
        return min((step + 1) / warmup, linear if decay is None else decay)

    def total_steps(self, examples: int) -> int:
        """Optimizer steps, with this many examples per epoch."""
        return self.max_steps or steps_of(self.epochs, examples, self.batch_size)

    def passes(self, examples: int) -> float:
        """Passes over this many examples."""
        return self.total_steps(examples) * self.batch_size / examples
