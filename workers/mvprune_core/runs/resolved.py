"""A request for a compression, and the run that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import Base, Coding, ModelSource
from mvprune.artifact.structures import Structures
from mvprune.data.phases import Phase, phases_of
from mvprune_core.base.settings import Settings
from mvprune_core.methods import Method
from mvprune_core.models.loading import Loaded, Source
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.models.value_head import ValueHead
from mvprune_core.pruning.selectors import Selector
from mvprune_core.runs.baselines import SharedBaseline
from mvprune_core.runs.given_masks import GivenMask
from mvprune_core.runs.spec import Spec
from mvprune_core.storing.reopening import Sample
from mvprune_core.tasks import Objective, TaskData
from mvprune_core.tasks.batching import Examples, Indices
from mvprune_core.training.distillation import Teacher


@dataclass(frozen=True)
class Request:
    """The arguments of `compress`.

    Attributes:
        spec: what is asked for; settled.
        objective: of the data.
        source: the model.
        device: where it is trained.
        dense_baseline: whether to evaluate the dense model, or that of another run.
    """

    spec: Spec
    objective: Objective
    source: Source
    device: torch.device
    dense_baseline: bool | SharedBaseline

    @property
    def data(self) -> TaskData:
        """The data set."""
        return self.objective.data

    def keeps(self, student: Loaded) -> bool:
        """Whether the result is a model as it is, without training: the student, or that of `start_from`."""
        return self.spec.keep_fine_tuned and (student.fine_tuned or self.spec.start_from is not None)


class Examined(NamedTuple):
    """Examples, and their objective."""

    objective: Objective
    examples: Examples


@dataclass(frozen=True)
class ResolvedRun(Request):
    """A request with nothing left to decide. All steps of a run read it; none changes it. A shared baseline is one that
    this run can use.

    Attributes:
        method: with the defaults for its number of steps.
        density: fraction of the prunable weights to keep.
        teacher: its model, if it is not the dense baseline, is a `Source`; its hidden states have a weight.
        model: provenance of the model.
        config: the model's transformers config, with the task's head.
        tokenizer: digest of the model's tokenizer.
        fine_tuned: whether the model is fine-tuned for the task already, so that the dense baseline needs no training.
        is_kept: whether the result is a model as it is, without training.
        max_length: tokens in an input.
        train: the training examples, tokenised.
        validation: the validation examples, tokenised.
        sample: texts of the validation data, to compare the artifact with the model.
        settings: training settings without gaps.
        dense_settings: those of the dense model, whose learning rate may be another one.
        total_steps: optimizer steps of a training phase.
        base: the model, if the artifact is to refer to it.
        given_mask: the mask, if it is given, and the weights to start from.
        start: the masks and the weights of the result that pruning goes on from; None: of the model.
        structures: the heads and units, or the layers, that may be removed.
        selector: which weights stay at a density.
        value_head: the layer of the model that training sees in another scale; None: there is none.
        test: what the result is measured on once; None: nothing.
        on_the_way: what models are evaluated on while they are trained.
    """

    method: Method
    density: float
    teacher: Teacher | None
    model: ModelSource
    config: Any
    tokenizer: str
    fine_tuned: bool
    is_kept: bool
    max_length: int
    train: Examples
    validation: Examples
    sample: Sample
    settings: Settings
    dense_settings: Settings
    total_steps: int
    base: Base | None
    given_mask: GivenMask | None
    start: GivenMask | None
    structures: tuple[Structures, ...]
    selector: Selector
    value_head: ValueHead | None
    test: Examined | None
    on_the_way: Examined

    @property
    def dense_steps(self) -> int:
        """Optimizer steps of this run's own dense model, as baseline or teacher."""
        is_teacher = self.teacher is not None and self.named_teacher is None
        return self.total_steps if (self.has_own_baseline or is_teacher) and not self.fine_tuned else 0

    @property
    def prunes_dense(self) -> bool:
        """Whether pruning goes on from the dense model, in place of the original one."""
        shared = self.shared_baseline
        given = self.fine_tuned or self.is_kept or self.start is not None or self.given_mask is not None
        has_dense = shared.is_teacher and shared.is_whole if shared is not None else self.dense_steps > 0
        return self.method.prunes_trained and has_dense and not given

    @property
    def phases(self) -> list[Phase]:
        """The phases of the run, in order."""
        teacher: Literal["dense", "other"] = "dense" if self.named_teacher is None else "other"
        return phases_of(
            baseline=self.has_own_baseline,
            teacher=teacher if self.teacher is not None else None,
            writes=self.teacher is not None and self.teacher.writes_targets,
            predicts=self.teacher is not None and self.teacher.learns_outputs,
            trains_dense=not self.fine_tuned,
            prunes=not self.is_kept,
            steps=self.total_steps,
            batch_size=self.settings.batch_size,
            evaluate_every=self.settings.evaluate_every or 0,
            train=len(self.train),
            validation=len(self.validation),
        )

    @property
    def has_own_baseline(self) -> bool:
        """Whether this run evaluates its own dense baseline."""
        return self.dense_baseline is True

    @property
    def shared_baseline(self) -> SharedBaseline | None:
        """The dense baseline, if another run trained it."""
        return self.dense_baseline if isinstance(self.dense_baseline, SharedBaseline) else None

    @property
    def named_teacher(self) -> Source | None:
        """The teacher, if it is not the dense baseline."""
        return self.teacher.model if self.teacher and isinstance(self.teacher.model, Source) else None

    @property
    def coding_of_start(self) -> Coding | None:
        """How the artifact that pruning goes on from stores the embeddings, if the result's are to be stored so. They
        are the same, and small differences of the metric would decide again."""
        is_asked = self.spec.embedding_dtype is not None or self.spec.target_bytes is not None
        if self.start is None or is_asked or self.settings.train_embeddings:
            return None
        return self.start.coding

    def used(self, coding: Coding, *, trimmed: bool) -> Spec:
        """The spec with every option that was used.

        Args:
            coding: how the artifact stores the values.
            trimmed: whether the positions are trimmed.
        """
        return replace(
            self.spec,
            method=self.method,
            density=self.density,
            training=self.settings,
            teacher=self.teacher,
            weight_dtype=coding.values.value,
            embedding_dtype=coding.embeddings.value,
            trim_positions=trimmed,
        )

    def layers_of(self, model: nn.Module) -> dict[str, nn.Linear | Conv1D]:
        """The layers of `model` whose weights are pruned, by name."""
        return pruned_layers(model, self.spec, self.structures)

    def class_order(self, config: Any) -> Indices | None:
        """A model's index of each class of the data, shape (classes,); None if the data has no classes."""
        return self.objective.class_order(config)


def pruned_layers(model: nn.Module, spec: Spec, structures: Sequence[Structures]) -> dict[str, nn.Linear | Conv1D]:
    """By name, the layers whose weights are pruned: those of the structures, if there are any."""
    layers = prunable_layers(model, spec.include, spec.exclude)
    whole = {name for each in structures for name in each.layers}
    return {name: layer for name, layer in layers.items() if name in whole} if structures else layers
