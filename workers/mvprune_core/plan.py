"""The plan of a compression: as given, and resolved against model and data before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from mvprune.artifact import Base, Coding, ModelSource
from mvprune_core.accounting import check_density
from mvprune_core.batching import Examples, Indices
from mvprune_core.distillation import Teacher, compare_states
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.forward import check_forward, padding_side
from mvprune_core.methods import Method
from mvprune_core.models import Loaded, Source, find_model, longest_input
from mvprune_core.precision import check_speed, with_length_buckets
from mvprune_core.prunable import prunable_layers
from mvprune_core.result import model_source
from mvprune_core.settings import BASE_WIDTH, Settings, Training
from mvprune_core.storage import Cache
from mvprune_core.tasks import Objective, TaskData
from mvprune_core.token_cache import cached_examples, tokenizer_digest

_PASSES_FOR_HIDDEN_STATES = 5  # over the data; in shorter runs, matching them does not help (research/notebook.md)


@dataclass(frozen=True)
class Plan:
    """The arguments of `compress`, checked; defaults that depend on the model and the data are missing."""

    data: TaskData
    objective: Objective
    source: Source
    method: Method
    density: float
    training: Training
    teacher: Teacher | None
    seed: int
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    device: torch.device
    coding: Coding
    trim_vocabulary: bool
    delta: bool
    allow_density_miss: bool


@dataclass(frozen=True)
class ResolvedRun(Plan):
    """A plan with nothing left to decide. All steps of a run read it; none changes it.

    The method has the defaults for its number of steps. The teacher, if it is named, is a `Source`, and its hidden
    states have a weight.

    Attributes:
        model: provenance of the model.
        config: the model's transformers config, with the task's head.
        tokenizer: digest of the model's tokenizer.
        fine_tuned: whether the model is fine-tuned for the task already, so that the dense baseline needs no training.
        max_length: tokens in an input.
        train: the training examples, tokenised.
        validation: the validation examples, tokenised.
        settings: training settings without gaps.
        total_steps: optimizer steps of a training phase.
        base: the model, if the artifact is to refer to it.
    """

    model: ModelSource
    config: Any
    tokenizer: str
    fine_tuned: bool
    max_length: int
    train: Examples
    validation: Examples
    settings: Settings
    total_steps: int
    base: Base | None

    @property
    def dense_steps(self) -> int:
        """Optimizer steps of the dense baseline."""
        return 0 if self.fine_tuned else self.total_steps

    @property
    def named_teacher(self) -> Source | None:
        """The teacher, if it is not the dense baseline."""
        return self.teacher.model if self.teacher and isinstance(self.teacher.model, Source) else None

    def class_order(self, config: Any) -> Indices | None:
        """A model's index of each class of the data, shape (classes,); None if the data has no classes."""
        return self.objective.class_order(config)


def resolve(plan: Plan, student: Loaded, cache: Cache) -> ResolvedRun:
    """Checks a plan against the model and the data, and fills in its defaults. Trains nothing.

    Args:
        plan: the plan.
        student: the model of `plan.source`; left in evaluation mode.
        cache: for tokenised data.

    Raises:
        ValueError, CompressionError: see `compress`.
    """
    training, data = plan.training, plan.data
    _check_layers(plan, student)
    if training.gradient_checkpointing and not student.model.supports_gradient_checkpointing:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            "training.gradient_checkpointing must be false for a model that does not support it, got true for a "
            f"{type(student.model).__name__}; take more accumulation_steps to save memory",
        )
    max_length = input_length(plan, plan.source, student, training.max_length or data.task.max_length)
    train = cached_examples(cache, plan.objective, data, student, max_length, "train")
    validation = cached_examples(cache, plan.objective, data, student, max_length, "validation")
    for split in (train, validation):
        check_forward(student.model, split)
    side = padding_side(student.model, (train, validation))
    train, validation = (replace(split, padding_side=side) for split in (train, validation))
    settings = training.settings(data.task, getattr(student.config, "hidden_size", BASE_WIDTH), len(train))
    check_speed(plan.device, training.precision)
    total_steps = settings.total_steps(len(train))
    plan.method.schedule.check(total_steps)
    chosen = {
        "method": plan.method.for_run(total_steps),
        "teacher": plan.teacher and _resolve_teacher(plan.teacher, settings.passes(len(train)), student, train),
    }
    return ResolvedRun(
        **vars(plan) | chosen,
        model=model_source(plan.source),
        config=student.config,
        tokenizer=tokenizer_digest(student.tokenizer),
        fine_tuned=student.fine_tuned,
        max_length=max_length,
        train=with_length_buckets(train, settings.precision),
        validation=validation,
        settings=settings,
        total_steps=total_steps,
        base=Base(plan.source.folder) if plan.delta else None,
    )


def input_length(plan: Plan, source: Source, loaded: Loaded, max_length: int) -> int:
    """`max_length`, or the longest input of the model if that is shorter.

    Raises:
        CompressionError: INVALID_MODEL, the model's inputs are too short for the task.
    """
    length = longest_input(loaded, max_length)
    kind = plan.data.task.kind
    if length < kind.min_tokens <= max_length:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"the model {source.name!r} must take inputs of at least {kind.min_tokens} tokens for {kind.name}, got "
            f"{length}",
        )
    return length


def _check_layers(plan: Plan, student: Loaded) -> None:
    layers = prunable_layers(student.model, plan.include, plan.exclude)
    if not plan.allow_density_miss:
        sizes = [layer.weight.numel() for layer in layers.values()]
        remedy = "take a density that the model's matrices are large enough for, global selection"
        check_density(plan.density, plan.method.kept(sizes, plan.density), sum(sizes), remedy)


def _resolve_teacher(teacher: Teacher, passes: float, student: Loaded, train: Examples) -> Teacher:
    """The teacher with a `Source`, unless it is the dense baseline, and with a weight for its hidden states."""
    given = teacher.hidden_states
    # A named teacher may have been pretrained differently. Its hidden states then mean something else.
    default = float(passes >= _PASSES_FOR_HIDDEN_STATES and teacher.model is None)
    weight = default if given is None else given
    try:
        if weight:
            check_forward(student.model, train, compare_states)
    except CompressionError:
        if given is not None:
            raise
        weight = 0.0
    model = None if teacher.model is None else find_model(teacher.model, teacher.revision)
    return replace(teacher, model=model, hidden_states=weight)
