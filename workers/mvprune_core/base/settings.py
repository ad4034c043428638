"""Fine-tuning settings: those that a user may set, and those that a run uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

from mvprune.data.run_length import Preset, epochs_of, steps_of
from mvprune.data.tasks import Task
from mvprune.spec.rules import training_problems, value_problems
from mvprune_core.base.options import given_fields, refuse

Precision = Literal["fp32", "bf16", "auto"]

BASE_WIDTH = 768  # of BERT-base, for which the tasks' learning rates are meant
# For narrower models, by their greatest width. A pruned MiniLM (384) collapses at 3e-4; BERT-tiny (128) hardly learns
# at 1e-4.
_NARROW_LEARNING_RATES = {255: 3e-4, BASE_WIDTH - 1: 1e-4}
# Of the rate above, for a model that was trained for the task and whose layers are reconstructed. MiniLM on SST-2, 60
# steps of 16 after oBERT, accuracy at 50 and 30 %: 86.2 and 85.3 with 0.1; 86.0 and 85.6 with 0.3; at 30 % 84.8
# with 0.6. In 300 steps with three events, at 34 and 15 %: 85.1 and 82.8 with 0.3; 83.7 and 81.3 with 1.
_RECOVERY_RATE = 0.3


@dataclass(frozen=True)
class Training:
    """Fine-tuning settings; None is the task's default.

    Args:
        preset: length of the training, in place of `max_steps` and `epochs`; by default short. short: the task's
            epochs, and more if these are less than 3,000 steps: enough for 3,000 steps, but at most 30 epochs, and at
            least 200 steps. paper: the published epochs. long: twice the published epochs, half of them at the final
            density. See `mvprune.data.run_length`.
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
            auto is bf16 if the device is measured to be clearly faster in it and the gradients agree, else fp32: give
            one of the two for the same result on different machines. Short runs of small models and deterministic ones
            are fp32 without measuring.
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

    preset: Preset | None = None
    max_steps: int | None = None
    epochs: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    max_length: int | None = None
    accumulation_steps: int = 1
    precision: Precision = "auto"
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
        given = given_fields(self)
        refuse(value_problems(given))
        refuse(training_problems(given))

    def settings(self, task: Task, hidden_size: int = BASE_WIDTH, examples: int | None = None) -> Settings:
        """These settings with all defaults, which depend on the task, the model's width and the number of examples.

        Raises:
            ValueError: best_metric is not a metric of the task.
        """
        refuse(training_problems(given_fields(self), task))
        narrow = (rate for width, rate in _NARROW_LEARNING_RATES.items() if hidden_size <= width)
        usual_rate = next(narrow, task.learning_rate)
        batch_size = self.batch_size or task.batch_size
        usual_epochs = epochs_of(task, None if self.max_steps else examples, batch_size, self.preset or "short")
        filled = {
            "preset": None,
            "epochs": self.epochs or usual_epochs,
            "batch_size": batch_size,
            "learning_rate": self.learning_rate or usual_rate,
            "weight_decay": task.weight_decay if self.weight_decay is None else self.weight_decay,
            "max_length": self.max_length or task.max_length,
        }
        return Settings(**asdict(self) | filled)

    def recovery(self, usual: Settings) -> Settings:
        """The `usual` settings of these for a model that was trained for the task and whose layers are reconstructed:
        the default of the learning rate is lower."""
        rate = self.learning_rate or _RECOVERY_RATE * usual.learning_rate
        return replace(usual, learning_rate=rate)


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Training settings with all defaults, see `Training`.

    `epochs` replaces `preset`, and is used if `max_steps` is None. None in another field means never, or the task's
    primary metric.
    """

    epochs: float
    batch_size: int
    learning_rate: float
    weight_decay: float
    max_length: int

    def __post_init__(self) -> None:
        """Both `max_steps` and `epochs` are set; what was given is checked."""

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
