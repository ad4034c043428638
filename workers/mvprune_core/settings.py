"""Fine-tuning settings: what a user may set, and what a run uses."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Literal

from mvprune.common.suggestions import must_be_one_of
from mvprune.data.tasks import Task
from mvprune_core.options import check_choice

Precision = Literal["fp32", "bf16"]

BASE_WIDTH = 768  # of BERT-base, for which the tasks' learning rates are meant
# Of narrower models, by their greatest width. A pruned MiniLM (384) collapses at 3e-4; BERT-tiny (128) hardly learns
# at 1e-4.
_NARROW_LEARNING_RATES = {255: 3e-4, BASE_WIDTH - 1: 1e-4}
# Pruning takes steps, not passes, as long as the examples are not too few (research/notebook.md).
_USUAL_STEPS, _MOST_USUAL_EPOCHS = 3000, 30
# Of 100 sentences of SST-2, BERT-tiny pruned to 10 % in 12 or 40 steps learns to answer always the same; in 200 it is
# right about 61 %, in 600 no more often.
_FEWEST_STEPS = 200
_MAY_BE_ZERO = ("weight_decay", "learning_rate_growth")
_WORDS = ("precision", "best_metric")
_WHOLE = ("max_steps", "batch_size", "max_length", "accumulation_steps", "evaluate_every", "patience")


@dataclass(frozen=True)
class Training:
    """Fine-tuning settings; None takes the task's default.

    Args:
        max_steps: optimizer steps; given in place of `epochs`.
        epochs: passes over the training data, may be a fraction; by default the task's, and where these are less than
            3,000 steps as many as that takes, up to 30 passes, or to 200 steps where 30 are less.
        batch_size: examples a step.
        learning_rate: of the weights (AdamW), reached after a linear warm-up over 10 % of the steps, then falling
            linearly to 0. Models narrower than BERT-base take 1e-4 by default, and 3e-4 below a width of 256, not the
            task's rate, which suits BERT-base: at 3e-5 they learn next to nothing in a few hundred steps.
        weight_decay: of the weights; never of biases, norms and scores.
        max_length: tokens an input; longer ones are cut.
        accumulation_steps: forward passes that a batch is cut into; for batches that do not fit into memory.
        precision: bf16 runs forward and backward passes under autocast; weights, scores and optimizer stay fp32.
        train_embeddings: the published recipes freeze them, and so does the default.
        dropout: trains with the dropout of the model's config; by default without any, which takes less time and left
            models of QQP more accurate, dense or pruned.
        compile: runs the model through torch.compile; needs a C++ compiler on the CPU.
        gradient_checkpointing: recomputes activations in the backward pass, for less memory.
        deterministic: refuses operations that may differ from run to run, on devices that have such.
        evaluate_every: steps between evaluations; None evaluates in the end alone.
        patience: ends the run after so many evaluations at the target density without improvement.
        keep_best: the result is the best model that was evaluated at the target density, not the last.
        best_metric: what patience and keep_best go by: one of the task's metrics, by default its primary one.
        learning_rate_growth: x, 0 or more: at a density of v the pruned matrices learn at learning_rate · v^(-x). With
            1, the default, a step changes what a matrix gives as much as in the dense model, though fewer weights make
            the change (Dey, Bergsma and Hestness 2024, https://arxiv.org/abs/2405.15743, table 1). 0 keeps the rate as
            it is, which is how movement pruning was published.

    Raises:
        ValueError: a setting out of its range, or settings that contradict each other.
    """

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
    learning_rate_growth: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is field.default or field.name in _WORDS:
                continue
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise ValueError(f"training.{field.name}: {value!r} given; true or false is allowed")
                continue
            zero_allowed = field.name in _MAY_BE_ZERO
            is_number = isinstance(value, int | float) and not isinstance(value, bool)  # YAML 1.1 reads 3e-5 as text
            if not is_number or not (0 < value < math.inf or (zero_allowed and value == 0)):
                allowed = "a number of 0 or more" if zero_allowed else "a positive number"
                raise ValueError(f"training.{field.name}: {value!r} given; {allowed} is allowed")
            if field.name in _WHOLE and not isinstance(value, int):
                raise ValueError(f"training.{field.name}: {value} given; a whole number is allowed")
        check_choice("training.precision", self.precision, Precision)
        if self.max_steps is not None and self.epochs is not None:
            raise ValueError("training: max_steps and epochs are both given; one of them decides the length of the run")
        if self.evaluate_every is None and (self.patience is not None or self.keep_best):
            name = "patience" if self.patience is not None else "keep_best"
            raise ValueError(f"training.{name}: given without evaluate_every, which says how often to evaluate")
        if self.best_metric is not None and self.patience is None and not self.keep_best:
            raise ValueError("training.best_metric: given without patience or keep_best, which go by it")

    def settings(self, task: Task, hidden_size: int = BASE_WIDTH, examples: int | None = None) -> Settings:
        """These settings with the defaults of the task, of the model's width and the number of examples, filled in.

        Raises:
            ValueError: best_metric is none of the task's.
        """
        if self.best_metric not in (None, *task.metrics):
            raise ValueError(f"training.best_metric {must_be_one_of(task.metrics, str(self.best_metric))}")
        narrow = (rate for width, rate in _NARROW_LEARNING_RATES.items() if hidden_size <= width)
        usual_rate = next(narrow, task.learning_rate)
        batch_size, usual_epochs = self.batch_size or task.batch_size, task.epochs
        if examples is not None and self.max_steps is None:
            usual_epochs = max(usual_epochs, _enough_epochs(math.ceil(examples / batch_size)))
        given = asdict(self)
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
    """Training settings without gaps, see `Training`; `epochs` counts where `max_steps` is None, and None of the others
    means never, or the task's own."""

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
    learning_rate_growth: float

    def total_steps(self, examples: int) -> int:
        """Optimizer steps over so many examples an epoch."""
        return self.max_steps or math.ceil(self.epochs * math.ceil(examples / self.batch_size))


def _enough_epochs(steps: int) -> int:
    """The epochs that a run over few examples needs, of so many steps each."""
    return max(min(math.ceil(_USUAL_STEPS / steps), _MOST_USUAL_EPOCHS), math.ceil(_FEWEST_STEPS / steps))
