"""Dense baselines that another run trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mvprune.artifact import ModelSource, ResultInfo
from mvprune.artifact.class_results import ClassResult
from mvprune.artifact.history import Resampled
from mvprune.common.metrics import TEST
from mvprune.data.loading import TaskData
from mvprune_core.base.settings import Settings
from mvprune_core.tasks import Objective

ON_THE_WAY = "evaluated_examples"
"""The option that concerns evaluations during training only."""
# They concern pruned matrices or only the memory.
_WITHOUT_EFFECT = {"lr_density_exponent", "accumulation_steps", "gradient_checkpointing"}


@dataclass(frozen=True)
class SharedBaseline:
    """The dense model of another run. Its metrics become the dense metrics of this run.

    Attributes:
        name: the name of the other run in notes and errors, such as projects/p/jobs/j.
        result: the content of the other run's manifest.
        is_teacher: the teacher is that model. In this case the default of the teacher's `hidden_states` is that of a
            run with its own baseline.
        required: raise an error if the model cannot be the baseline of this run. If false, the run trains its own
            baseline in this case.
        resampled: see `History`; where the data is not among them, the differences from the model have no interval.
    """

    name: str
    result: ResultInfo
    is_teacher: bool = False
    required: bool = False
    resampled: Mapping[str, Resampled] = field(default_factory=dict)

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the dense model without their prefix."""
        return self._metrics("eval/")

    def test_metrics(self, test: TaskData | None) -> Mapping[str, float]:
        """Those of data to test on; {} where the model was not measured on it."""
        return self._metrics(f"{TEST}/") if test is not None and test.fingerprint in self.resampled else {}

    def resampled_by(self, metric: str) -> Mapping[str, Resampled]:
        """The samples of a primary metric; {} where the model was sampled by another one."""
        return self.resampled if self.result.primary_metric == metric else {}

    @property
    def written(self) -> tuple[str, ...]:
        """What the dense model wrote for the examples of its card."""
        return tuple(one.pruned for one in self.result.examples)

    @property
    def classes(self) -> tuple[ClassResult, ...]:
        """How the dense model answered the examples of each class."""
        return self.result.classes

    def _metrics(self, prefix: str) -> Mapping[str, float]:
        found = self.result.metrics.items()
        return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}

    @property
    def is_whole(self) -> bool:
        """Whether the artifact has the tokenizer and all positions of the original model."""
        return not any(self.result.spec.get(option) for option in ("trim_vocabulary", "trim_positions"))

    def why_not(self, model: ModelSource, data: TaskData) -> str:
        """Why the model cannot be the dense baseline of a run with this model and these data, as the rest of a
        sentence; "" if it can."""
        result = self.result
        if result.accounting.target_density != 1:
            return f"has the density {result.accounting.target_density:g}"
        if result.activations != "fp32":
            return f"has metrics of {result.activations} activations"
        if result.model.sha256 != model.sha256:
            return f"was trained from another model ({result.model.name!r}, not {model.name!r})"
        if result.dataset.name != data.task.name:
            return f"was trained for {result.dataset.name}, not {data.task.name}"
        if result.dataset.fingerprint != data.fingerprint:
            return "was trained on other data"
        if data.task.primary_metric not in self.metrics:
            return f"has no eval/{data.task.primary_metric}"
        return ""

    def note(self, settings: Settings, objective: Objective, seed: int, *, fine_tuned: bool) -> str:
        """Where the dense metrics come from, and what differs from a baseline of the run's own.

        Args:
            settings: the settings of this run.
            objective: with its options.
            seed: its seed.
            fine_tuned: whether the model is fine-tuned for the task already.
        """
        text = f"the dense metrics are those of {self.name}"
        if fine_tuned and not self.result.spec.get("keep_fine_tuned"):
            return f"{text}, which fine-tuned the model again; the model itself was not evaluated"
        differences = [*self._differences(settings, fine_tuned=fine_tuned)]
        for name in sorted(objective.data.task.kind.options - {ON_THE_WAY}):
            differences += _differing(name, self.result.spec.get(name), objective.options.get(name))
        if not fine_tuned:
            differences += _differing("seed", self.result.seed, seed)
        return f"{text}, which has other settings: {', '.join(differences)}" if differences else text

    def _differences(self, settings: Settings, *, fine_tuned: bool) -> Iterator[str]:
        training, own = self.result.spec.get("training"), asdict(settings)
        other: Mapping[str, Any] = training if isinstance(training, Mapping) else {}
        unused = {"epochs"} if other.get("max_steps") and own["max_steps"] else set()
        # Without training, only the evaluation has settings.
        names = ["max_length"] if fine_tuned else [name for name in own if name not in _WITHOUT_EFFECT | unused]
        for name in names:
            yield from _differing(name, other.get(name), own[name])


def _differing(name: str, other: Any, own: Any) -> Iterator[str]:
    """The text "NAME OTHER in place of OWN" if the values differ. Manifests of jobs have whole numbers as text, and
    words in capitals."""
    if _plain(other) != _plain(own):
        yield f"{name} {_shown(other)} in place of {_shown(own)}"


def _plain(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value).lower()


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value).lower()
