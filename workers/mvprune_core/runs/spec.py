"""The request of a run, as one object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from mvprune.artifact import Coding, Values
from mvprune.data.run_length import planned_steps
from mvprune.data.tasks import Task
from mvprune.spec.method_choice import choose_method
from mvprune.spec.parameter import AUTO
from mvprune.spec.patterns import parse_pattern
from mvprune.spec.rules import problems, value_problems
from mvprune.spec.run_options import RunKeywords, RunOptions
from mvprune_core.base.options import given_fields, refuse
from mvprune_core.base.settings import Training
from mvprune_core.methods import METHODS, LockedMask, Method, get_method
from mvprune_core.models.loading import Source
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.structure_kinds import KINDS
from mvprune_core.runs.baselines import SharedBaseline
from mvprune_core.storing.target_size import OTHERS
from mvprune_core.tasks import Objective, TaskData
from mvprune_core.training.distillation import Teacher

_OBJECTS = ("method", "training", "teacher")
_OF_LENGTH = ("max_steps", "epochs", "batch_size", "preset")


class SpecKeywords(RunKeywords, total=False):
    """The fields of a `Spec` as keywords of `compress`."""

    method: str | Method | None
    mask_from: str | Path | Source | None
    mask_revision: str | None
    training: Training
    teacher: Teacher | Literal["baseline"] | None


@dataclass(frozen=True, kw_only=True)
class Spec(RunOptions):
    """The request of a run. The options of the contract that are no objects of their own are those of `RunOptions`.

    Attributes:
        method: the name of a method, or a `Method` with options; by default auto: locked_mask with `mask_from`, else
            what lost least in measured runs of the length, density, pattern and task.
        mask_from: a model or an artifact with zeros: its zeros are the mask, which stays as it is. A model, as
            `model` of `compress`, or the folder of an artifact. It must have the architecture and the size of `model`.
        mask_revision: revision of `mask_from` on the hub.
        training: fine-tuning settings; by default the task's.
        teacher: the teacher for distillation. "baseline": the dense baseline, unless there is none, the density is 1 or
            the task is masked language modelling, which cannot be distilled. None: no distillation.
    """

    method: str | Method | None = None
    mask_from: str | Path | Source | None = None
    mask_revision: str | None = None
    training: Training = Training()  # noqa: RUF009 (immutable)
    teacher: Teacher | Literal["baseline"] | None = "baseline"

    @property
    def chosen_method(self) -> Method:
        """The method with its options.

        Raises:
            ValueError: no method has this name, or none was chosen yet.
        """
        return get_method(self.method or AUTO)

    def with_method(self, data: TaskData) -> tuple[Self, str]:
        """The spec with a method, and a note on it; "" if it is given.

        Args:
            data: the data of the run, by whose length the method is chosen.

        Raises:
            ValueError: an option out of range.
        """
        if self.method not in (None, AUTO):
            return self, ""
        if self.mask_from is not None:
            return replace(self, method=LockedMask.name), ""
        given = dict(self._given(True, self.training))
        refuse(value_problems(given))
        examples = len(data.train) if data.task.kind.rows_are_examples else None
        training = {name: getattr(self.training, name) for name in _OF_LENGTH}
        choice = choose_method(given, data.task, planned_steps(data.task, examples, **training))
        method = METHODS[choice.method]
        schedule = {name: value for name, value in choice.options.items() if name in Schedule.__dataclass_fields__}
        own: Any = {name: value for name, value in choice.options.items() if name not in schedule}
        if schedule:
            own["schedule"] = replace(method().schedule, **schedule)
        return replace(self, method=method(**own)), choice.reason

    @property
    def distilled_from(self) -> Teacher | None:
        """The teacher of a spec that is settled."""
        return self.teacher if isinstance(self.teacher, Teacher) else None

    @property
    def rounds(self) -> bool:
        """Whether the result is for a runtime that rounds activations."""
        return self.activations == "int8"

    @property
    def coding(self) -> Coding:
        """How the artifact stores the values; the finest way where the run may choose a coarser one."""
        values, embeddings = (Values(dtype or Values.FP16) for dtype in (self.weight_dtype, self.embedding_dtype))
        return Coding(values, embeddings, OTHERS[-1] if embeddings is Values.INT4 else None)

    def settled(self, objective: Objective, dense_baseline: bool | SharedBaseline) -> Self:
        """The spec with the defaults that depend neither on the model nor on the examples.

        Raises:
            ValueError: it breaks a rule.
        """
        method, teacher = self.chosen_method, self.teacher
        self._check(method, dense_baseline, objective.data.task)
        if teacher == "baseline":
            teacher = Teacher() if objective.outputs and dense_baseline and self.density != 1 else None
        if teacher is not None and not isinstance(teacher, Teacher):
            raise ValueError(f'teacher must be a Teacher, "baseline" or None, got {teacher!r}')
        if isinstance(dense_baseline, SharedBaseline) and teacher is not None and teacher.model is None:
            raise ValueError("teacher must name a model or be None with a SharedBaseline, got the dense baseline")
        own = None if self.pattern is None else parse_pattern(self.pattern).density
        density = self.density if own is None else own
        block_size = self.structure_block_size or (KINDS[self.structure].block_size if self.structure else None)
        return replace(self, method=method, teacher=teacher, density=density, structure_block_size=block_size)

    def _check(self, method: Method, dense_baseline: bool | SharedBaseline, task: Task) -> None:
        given = dict(self._given(dense_baseline, self.training, method, method.schedule))
        refuse(value_problems(given))
        refuse(problems(given, method.facts, task))

    def _given(self, dense_baseline: bool | SharedBaseline, *parts: Any) -> Iterator[tuple[str, Any]]:
        """The options as `mvprune.spec.rules` takes them."""
        yield from ((name, value) for name, value in given_fields(self).items() if name not in _OBJECTS)
        for part in parts:
            yield from given_fields(part).items()
        if isinstance(self.teacher, Teacher):
            yield "teacher", "baseline" if self.teacher.model is None else str(self.teacher.model)
            if self.teacher.writes_targets:
                yield "teacher_writes_targets", True
        elif self.teacher != "baseline":
            yield "teacher", self.teacher or "none"
        if isinstance(dense_baseline, SharedBaseline):
            yield "baseline", f"job:{dense_baseline.name}"
