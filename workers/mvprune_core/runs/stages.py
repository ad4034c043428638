"""Results that each step of a compression gives to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from mvprune.artifact import Coding
from mvprune.artifact.class_results import ClassResult
from mvprune.artifact.history import Phase, Resampled
from mvprune_core.models.loading import Loaded
from mvprune_core.training.curves import Curve
from mvprune_core.training.distributions import Distributions
from mvprune_core.training.masking import Masks


@dataclass(frozen=True)
class Trained:
    """A model after a phase of training, which took `steps` steps."""

    loaded: Loaded
    curve: Curve
    steps: int


@dataclass(frozen=True)
class Masked(Trained):
    """A pruned model that can be trained further.

    Attributes:
        masks: its masks, with the weights and scores.
        original: distribution of the weights before training.
    """

    masks: Masks
    original: Distributions


@dataclass(frozen=True)
class SizesBefore:
    """Sizes of a model before structures were removed, which counts of the result refer to.

    Attributes:
        parameters: elements of every parameter, by name.
        prunable: elements of the pruned weights.
        flops: of a dense forward pass; 0: those of the result, or not counted.
    """

    parameters: Mapping[str, int]
    prunable: int
    flops: int = 0

    @classmethod
    def of(cls, model: nn.Module, pruned: Sequence[str]) -> SizesBefore:
        """The sizes of the parameters, and of those with the names `pruned`."""
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        return cls(sizes, sum(sizes[name] for name in pruned))


@dataclass(frozen=True)
class FinalModel(Trained):
    """A pruned model as the artifact stores it: a plain model, masks applied, values rounded.

    Attributes:
        pruned: names of the pruned weights.
        before: the sizes of the model before structures were removed.
        coding: how the values are stored.
        density: what the masks were to keep.
        kept: non-zeros of the pruned weights before they were rounded.
        trimmed: whether the positions are trimmed.
    """

    pruned: tuple[str, ...]
    before: SizesBefore
    coding: Coding
    density: float
    kept: int
    trimmed: bool


@dataclass(frozen=True)
class Baseline:
    """The dense model.

    Attributes:
        metrics: of the task.
        resampled: its primary metric on samples of examples, by the fingerprint of their data.
        test: the metrics on the examples to test on; {}: not measured.
        history: of its training; () if another run trained it.
        written: what it wrote for `Objective.shown`; () where it writes nothing.
        classes: see `Objective.by_class`.
    """

    metrics: Mapping[str, float]
    resampled: Mapping[str, Resampled]
    test: Mapping[str, float]
    history: tuple[Phase, ...] = ()
    written: tuple[str, ...] = ()
    classes: tuple[ClassResult, ...] = ()
