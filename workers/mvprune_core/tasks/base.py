"""The interface of a kind of task: the class that each file of this folder defines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import transformers
from torch import Tensor, nn

from mvprune.artifact.class_results import ClassResult
from mvprune.data.kinds.base import Task, TaskData
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.batching import Examples, Indices, Sources
from mvprune_core.tasks.chance import SanityFailure
from mvprune_core.tasks.classes import model_classes
from mvprune_core.tasks.label_scale import LabelScale
from mvprune_core.tasks.losses import Loss, OwnLoss
from mvprune_core.tasks.outputs import DistilledOutput
from mvprune_core.tasks.resampling import SampleMetric

Input = Mapping[str, str]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """A part of an input to predict for: its name, and whether an input must have it."""

    name: str
    required: bool = True


@dataclass(frozen=True)
class Objective(ABC):
    """A kind of task over one data set: its head, its examples, its metrics and its answers.

    Attributes:
        data: the data set.
        kind: the name of the kind, as in `mvprune.data.kinds`.
        outputs: the outputs that a student learns from a teacher; () where the kind cannot be distilled.
        imports: the modules that `measure` imports. They are imported while a run trains; a run ends where that fails.
        any_can_teach: whether a teacher need not have been trained on the data: any model with the head answers.
        suggestion: a model that fits the kind, for messages.
        writes: whether a model answers with text that its `generate` writes; it reads what `prompt` returns.
        unread: the beginnings of the names of tensors that the outputs do not depend on, such as those of a pooler.
        is_against_given: whether metrics compare with what the given model predicts, see `against`.
        options: those of the run that the kind takes, by name, as `Kind.options` lists them; only those that are given.
    """

    data: TaskData
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str]
    outputs: ClassVar[tuple[DistilledOutput, ...]] = ()
    imports: ClassVar[tuple[str, ...]] = ()
    any_can_teach: ClassVar[bool] = False
    suggestion: ClassVar[str] = "another model, such as a BERT"
    writes: ClassVar[bool] = False
    unread: ClassVar[tuple[str, ...]] = ()
    is_against_given: ClassVar[bool] = False

    @property
    def auto_class(self) -> Any:
        """transformers' `AutoModelFor…` class that has the head; `AutoModel` where there is none."""
        head = self.data.task.kind.head
        return getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")

    @property
    def classes(self) -> tuple[str, ...]:
        """The data's names of the classes in the order of their numbers; () where the outputs are not classes."""
        return ()

    @property
    def has_labels(self) -> bool:
        """Whether the training examples have labels."""
        return self.data.task.kind.has_labels

    def class_order(self, config: Any) -> Indices | None:
        """The model's number of each of `classes`, shape (classes,); None where there are none.

        Raises:
            ValueError: the model has other classes.
        """
        return model_classes(config, self.classes) if self.classes else None

    def loss(self, config: Any) -> Loss:
        """The loss of the training, for a model with this config. By default the model's own loss."""
        return OwnLoss()

    def label_scale(self, config: Any) -> LabelScale | None:
        """The scale of the training labels, if training is to take them standardised: see `ValueHead`."""
        return None

    def read_folder(self, folder: Path, config: Any) -> tuple[str, ...]:
        """Writes into a model's config what files beside it say and the kind needs. Returns notes on it.

        Raises:
            CompressionError: INVALID_MODEL, they say something that is not possible.
        """
        return ()

    @abstractmethod
    def configure(self, config: Any) -> bool:
        """Writes the head into a model's config. Returns whether the head that it had before solves the same task."""

    def settle(self, model: Any, tokenizer: Any) -> tuple[str, ...]:
        """Gives a model that was loaded with the head, and its tokenizer, what the kind and its options need. Returns
        notes on it.

        Raises:
            CompressionError: the model cannot have it.
        """
        return ()

    def input_length(self, config: Any) -> int:
        """Tokens of an input where none are given, for a model with this config."""
        return self.data.task.max_length

    def config_of_run(self, config: Any, max_length: int) -> Mapping[str, Any]:
        """What the config of a trained model is to say of the run to those who open it, by key.

        Args:
            config: of the model.
            max_length: tokens of an input.
        """
        return {}

    def check_config(self, config: Any) -> None:
        """Checks that transformers has models of this architecture for the kind of task.

        Raises:
            CompressionError: UNSUPPORTED_ARCHITECTURE, it has none.
        """
        if type(config) not in self.auto_class._model_mapping:
            raise CompressionError(
                Reason.UNSUPPORTED_ARCHITECTURE,
                f"the model must be of a type that transformers has an {self.auto_class.__name__} for, got "
                f"{config.model_type}; give {self.suggestion}",
            )

    def flaw_of_model(self, model: nn.Module, tokenizer: Any) -> str:
        """Why a model that was loaded with the head does not fit the kind, as the end of a sentence; "" where it does.
        It may be left in evaluation mode."""
        return ""

    def flaw_of_teacher(self, teacher: Any, config: Any) -> tuple[str, str] | None:
        """Why a model with one config cannot teach one with another: what it must do, and what it has. None: it can."""
        return None

    @abstractmethod
    def training_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """The training split, tokenised, with the labels that `loss` reads.

        Labels of tokens are among the inputs, and the loss is then a mean over them (see `Examples.per_token`). Other
        labels are targets.
        """

    def sources(self, tokenizer: Any, config: Any, max_length: int, which: Indices) -> Sources:
        """What a teacher reads to write the targets of training examples, where the kind `writes`.

        Args:
            tokenizer, config: of the teacher.
            max_length: tokens that it reads, or that a decoder reads and writes.
            which: indices of the examples, shape (examples,).
        """
        raise NotImplementedError(f"{type(self).__name__} writes no text")

    def with_targets(self, which: Indices, texts: Sequence[str]) -> Self:
        """The objective whose training examples are those with some indices, with these texts as their targets; where
        a text is empty, with their own."""
        raise NotImplementedError(f"{type(self).__name__} writes no text")

    def flaw_of_targets(self) -> str:
        """Why a teacher cannot write the targets of the training examples, as the end of a sentence; "" where it
        can."""
        return ""

    def longest_output(self, config: Any, max_length: int) -> int:
        """Tokens of an example that a model with this config has an output for, at most."""
        return max_length

    def against(self, given: Any) -> Self:
        """The objective that measures against what the given model predicts for `validation_examples`."""
        raise NotImplementedError(f"{type(self).__name__} compares with no other predictions")

    @property
    def of_given(self) -> Any:
        """What the given model predicts for `validation_examples`; None: that is not known."""
        return None

    @property
    def enough_on_the_way(self) -> int | None:
        """The number of examples that evaluations during training need at most, see `shortened`; None: all of them."""
        return None

    def shortened(self, count: int) -> Self:
        """The objective with so many of its validation examples, fewer than it has, for evaluations on the way."""
        raise NotImplementedError(f"{type(self).__name__} evaluates all examples")

    def notes_on(self, train: Examples) -> tuple[str, ...]:
        """Notes on the training examples."""
        return ()

    @abstractmethod
    def validation_examples(self, tokenizer: Any, config: Any, max_length: int) -> Examples:
        """The validation split, tokenised."""

    @abstractmethod
    def predict(self, model: nn.Module, examples: Examples, device: torch.device, group: Group = ALONE) -> Any:
        """The model's predictions for `validation_examples`. Leaves the model in evaluation mode.

        The ranks of a group share the forward passes, and all of them return all predictions.
        """

    @abstractmethod
    def measure(self, predictions: Any) -> dict[str, float]:
        """The task's metrics of what `predict` returned."""

    def shown(self, predictions: Any) -> list[tuple[str, str]]:
        """A few of the validation sources, with what the model wrote from them; [] where it writes nothing."""
        return []

    def fixed(self, predictions: Any) -> Self:
        """The objective with what its answers need beside the model, such as thresholds, as far as it is found on the
        validation examples, of which these are the predictions."""
        return self

    def keep(self, config: Any, predictions: Any) -> tuple[str, ...]:
        """Writes the same into a model's config. Returns notes on it."""
        return ()

    def by_class(self, predictions: Any) -> tuple[ClassResult, ...]:
        """How the validation examples of each class were answered; () where answers are no classes."""
        return ()

    def signature(self) -> str:
        """How packages compute the metrics, in the words of their own signatures, for the notes of a result; "" where
        the names say it."""
        return ""

    def sample_metric(self, predictions: Any) -> tuple[int, SampleMetric] | None:
        """The number of examples of what `predict` returned, and the primary metric on a sample of them; None where a
        difference of the metric is to have no interval."""
        return None

    def constant_metrics(self, examples: Examples) -> list[dict[str, float]]:
        """The metrics of each constant answer that could be taken for a result, such as the usual class for all inputs;
        [] where no answer is constant.

        Args:
            examples: of `validation_examples`.
        """
        return []

    def sanity_check(self, predictions: Any) -> SanityFailure | None:
        """Whether what `predict` returned is no better than chance, or names the wrong classes."""
        return None

    def check_teacher(
        self, logits: Mapping[str, Tensor], examples: Examples, which: Indices, names: Sequence[str]
    ) -> SanityFailure | None:
        """The same of a teacher's logits over training examples.

        Args:
            logits: by the name of the output, the rows of the examples one after the other.
            examples: the student's.
            which: of the examples.
            names: of the student's classes in the order of the logits.
        """
        return None

    @classmethod
    def flaw_of_head(cls, names: Sequence[str]) -> str:
        """Why a head with classes of these names does not fit the kind, as the end of a sentence; "" where it does."""
        return ""

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """The parts of an input to predict for; () where a model of this kind answers nothing by itself."""
        return ()

    @classmethod
    def prompt(cls, options: Mapping[str, Any], tokenizer: Any, text: str, room: int | None) -> list[int]:
        """The tokens that a model that `writes` reads of a text.

        Args:
            options: see `Objective`.
            tokenizer: of the model.
            text: of the field of an input.
            room: tokens at most; None: all of the text's.
        """
        raise NotImplementedError(f"{cls.__name__} writes no text")

    @classmethod
    def of_inputs(cls, task: Task, labels: tuple[str, ...], inputs: Sequence[Input]) -> Self:
        """An objective whose validation split is these inputs.

        Args:
            task: the task.
            labels: names of the model's classes in the order of its logits.
            inputs: texts by the names of `fields`, of which all inputs have the same.
        """
        raise NotImplementedError(f"{cls.__name__} has no fields")

    def answers(
        self, inputs: Sequence[Input], model: nn.Module, examples: Examples, device: torch.device
    ) -> list[Answer]:
        """The model's answer to each input, as `Predictor.predict` returns it.

        Args:
            inputs: those that `of_inputs` received.
            model: the model, left in evaluation mode.
            examples: of `validation_examples`.
            device: where the model is.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fields")
