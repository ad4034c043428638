"""The plan of a compression: as given, and resolved against model and data before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import Base, Coding, ModelSource
from mvprune.artifact.structures import Structures
from mvprune.data.phases import Phase, phases_of
from mvprune.data.run_length import default_cooldown, preset_note, too_short
from mvprune.sources.model_types import problem_with_checkpointing
from mvprune.spec.patterns import Pattern
from mvprune.spec.structures import LEAST, problem_with_density
from mvprune_core.accounting import check_density
from mvprune_core.baselines import SharedBaseline
from mvprune_core.batching import Examples, Indices
from mvprune_core.distillation import Teacher, compare_states
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.forward import check_forward, padding_side
from mvprune_core.given_masks import GivenMask, load_mask
from mvprune_core.methods import LockedMask, Method, TopV
from mvprune_core.models import Loaded, Source, find_model, longest_input
from mvprune_core.notes import Notes
from mvprune_core.patterns import InPattern, check_pattern
from mvprune_core.positions import can_trim_positions, check_positions, rows_for
from mvprune_core.precision import check_speed, with_length_buckets
from mvprune_core.probes import probes
from mvprune_core.prunable import prunable_layers
from mvprune_core.reopening import Sample
from mvprune_core.selectors import WEIGHTS, Selector
from mvprune_core.settings import BASE_WIDTH, Settings, Training
from mvprune_core.sparse_structures import SparseStructures
from mvprune_core.storage import Cache
from mvprune_core.structure_kinds import StructureOptions, new_selector, pruned_structures
from mvprune_core.target_size import CANDIDATES, check_target
from mvprune_core.tasks import Objective, TaskData
from mvprune_core.token_cache import cached_examples, tokenizer_digest

_PASSES_FOR_HIDDEN_STATES = 5  # over the data; in shorter runs, matching them does not help (research/notebook.md)
_DENSITY_TO_MENTION = 1e-3  # relative difference from the density that was asked for


@dataclass(frozen=True)
class Plan:
    """The arguments of `compress`, checked; defaults that depend on the model and the data are missing."""

    data: TaskData
    objective: Objective
    source: Source
    method: Method
    mask_from: Source | None
    density: float | None
    pattern: Pattern | None
    structure: StructureOptions | None
    training: Training
    teacher: Teacher | None
    dense_baseline: bool | SharedBaseline
    seed: int
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    device: torch.device
    coding: Coding
    may_quantize_weights: bool
    may_quantize_embeddings: bool
    trim_vocabulary: bool
    trim_positions: bool
    target_bytes: int | None
    delta: bool
    allow_density_miss: bool
    keep_fine_tuned: bool


@dataclass(frozen=True)
class ResolvedRun(Plan):
    """A plan with nothing left to decide. All steps of a run read it; none changes it.

    The method has the defaults for its number of steps. The teacher, if it is named, is a `Source`, and its hidden
    states have a weight. A shared baseline is one that this run can use.

    Attributes:
        model: provenance of the model.
        config: the model's transformers config, with the task's head.
        tokenizer: digest of the model's tokenizer.
        fine_tuned: whether the model is fine-tuned for the task already, so that the dense baseline needs no training.
        max_length: tokens in an input.
        train: the training examples, tokenised.
        validation: the validation examples, tokenised.
        sample: texts of the validation data, to compare the artifact with the model.
        settings: training settings without gaps.
        total_steps: optimizer steps of a training phase.
        base: the model, if the artifact is to refer to it.
        given_mask: the mask, if it is given, and the weights to start from.
        structures: the heads and units, or the layers, that may be removed.
        selector: which weights stay at a density.
    """

    density: float

    model: ModelSource
    config: Any
    tokenizer: str
    fine_tuned: bool
    max_length: int
    train: Examples
    validation: Examples
    sample: Sample
    settings: Settings
    total_steps: int
    base: Base | None
    given_mask: GivenMask | None
    structures: tuple[Structures, ...]
    selector: Selector

    @property
    def dense_steps(self) -> int:
        """Optimizer steps of this run's own dense model, as baseline or teacher."""
        is_teacher = self.teacher is not None and self.named_teacher is None
        return self.total_steps if (self.has_own_baseline or is_teacher) and not self.fine_tuned else 0

    @property
    def phases(self) -> list[Phase]:
        """What the run does, in order."""
        teacher: Literal["dense", "other"] = "dense" if self.named_teacher is None else "other"
        return phases_of(
            baseline=self.has_own_baseline,
            teacher=teacher if self.teacher is not None else None,
            trains_dense=not self.fine_tuned,
            prunes=not self.is_kept,
            steps=self.total_steps,
            batch_size=self.settings.batch_size,
            evaluate_every=self.settings.evaluate_every or 0,
            train=len(self.train),
            validation=len(self.validation),
        )

    @property
    def is_kept(self) -> bool:
        """Whether the result is the model itself, without training."""
        return self.keep_fine_tuned and self.fine_tuned

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

    def layers_of(self, model: nn.Module) -> dict[str, nn.Linear | Conv1D]:
        """The layers of `model` whose weights are pruned, by name."""
        return _layers_of(model, self.include, self.exclude, self.structures)

    def class_order(self, config: Any) -> Indices | None:
        """A model's index of each class of the data, shape (classes,); None if the data has no classes."""
        return self.objective.class_order(config)


def resolve(plan: Plan, student: Loaded, source: Future[ModelSource], cache: Cache, notes: Notes) -> ResolvedRun:
    """Checks a plan against the model and the data, and fills in its defaults. Trains nothing.

    Args:
        plan: the plan.
        student: the model of `plan.source`; left in evaluation mode.
        source: provenance of that model, computed meanwhile.
        cache: for tokenised data.
        notes: receives a note on a shared baseline.

    Raises:
        ValueError, CompressionError: see `compress`.
    """
    training, data = plan.training, plan.data
    given_mask = _find_given_mask(plan, student, notes)
    structures = _find_structures(plan, student)
    layers = _layers_of(student.model, plan.include, plan.exclude, structures)
    if plan.pattern is not None:
        check_pattern(plan.pattern, layers)
    selector = _selector(plan, student, structures)
    sizes = [layer.weight.numel() for layer in layers.values()]
    density = _check_density(plan, sizes, selector, notes) if given_mask is None else given_mask.density
    if training.gradient_checkpointing and not student.model.supports_gradient_checkpointing:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"training.gradient_checkpointing {problem_with_checkpointing(type(student.model).__name__)}",
        )
    if plan.trim_positions:
        check_positions(student.model)
    max_length = input_length(plan, plan.source, student, training.max_length or data.task.max_length)
    if plan.target_bytes is not None:
        check_target(
            plan.target_bytes,
            student.model,
            student.tokenizer,
            {f"{name}.weight": layer.weight.numel() for name, layer in layers.items()},
            density,
            CANDIDATES[-1] if plan.may_quantize_weights else plan.coding.values,
            whole=plan.structure is not None or plan.pattern is not None,
            trimmed=plan.trim_vocabulary,
            rows=rows_for(student.model, max_length) if can_trim_positions(student.model) else None,
        )
    tokenizer = tokenizer_digest(student.tokenizer)
    train = cached_examples(cache, plan.objective, data, student, max_length, "train", tokenizer)
    validation = cached_examples(cache, plan.objective, data, student, max_length, "validation", tokenizer)
    side = padding_side(student.model, (train, validation, probes(student.tokenizer, max_length)))
    train, validation = (replace(split, padding_side=side) for split in (train, validation))
    settings = training.settings(data.task, getattr(student.config, "hidden_size", BASE_WIDTH), len(train))
    check_speed(plan.device, training.precision)
    total_steps = settings.total_steps(len(train))
    method = _with_cooldown(_with_selection(plan, notes), training)
    method.schedule.check(total_steps, method.facts)
    model = source.result()
    baseline = _resolve_baseline(plan, student, model, settings, notes)
    if training.preset is not None:
        notes.add(preset_note(data.task, len(train), settings.batch_size, training.preset))
    if density < 1 and method.schedule.shape != "one_shot":
        kind = data.task.kind
        note = too_short(
            total_steps,
            density,
            settings.batch_size,
            has_pairs=kind.has_pairs(data),
            limit=kind.rule_limit,
            beyond=kind.beyond_limit(data),
        )
        notes.add(*[note] if note else [])
    method = method.for_run(total_steps)
    notes.add(*method.notes(sizes, total_steps * settings.batch_size))
    chosen = {
        "method": method,
        "density": density,
        "dense_baseline": baseline,
        "teacher": plan.teacher
        and _resolve_teacher(plan.teacher, baseline, settings.passes(len(train)), student, train),
    }
    return ResolvedRun(
        **vars(plan) | chosen,
        model=model,
        config=student.config,
        tokenizer=tokenizer,
        fine_tuned=student.fine_tuned,
        max_length=max_length,
        train=with_length_buckets(train, settings.precision),
        validation=validation,
        sample=Sample.of(validation, student.tokenizer, max_length),
        settings=settings,
        total_steps=total_steps,
        base=Base(plan.source.folder) if plan.delta else None,
        given_mask=given_mask,
        structures=structures,
        selector=selector,
    )


def _with_cooldown(method: Method, training: Training) -> Method:
    """The method with the cooldown that the preset has by default."""
    schedule, has_schedule = method.schedule, "schedule" in {field.name for field in fields(method)}  # type: ignore[arg-type]
    if schedule.cooldown is not None or schedule.shape == "one_shot" or not has_schedule:
        return method
    changed: Any = {"schedule": replace(schedule, cooldown=default_cooldown(training.preset or "short"))}
    return replace(method, **changed)  # type: ignore[type-var]


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


def _layers_of(
    model: nn.Module, include: Sequence[str], exclude: Sequence[str], structures: Sequence[Structures]
) -> dict[str, nn.Linear | Conv1D]:
    """The layers whose weights are pruned: those of the structures, if there are any."""
    layers = prunable_layers(model, include, exclude)
    whole = {name for each in structures for name in each.layers}
    return {name: layer for name, layer in layers.items() if name in whole} if structures else layers


def _find_structures(plan: Plan, student: Loaded) -> tuple[Structures, ...]:
    if plan.structure is None:
        return ()
    layers = prunable_layers(student.model, plan.include, plan.exclude)
    return tuple(pruned_structures(student.model, layers, plan.structure.structure))


def _selector(plan: Plan, student: Loaded, structures: Sequence[Structures]) -> Selector:
    if plan.structure is not None:
        return new_selector(student.model, structures, plan.structure, plan.density)
    return WEIGHTS if plan.pattern is None else InPattern(plan.pattern)


def _with_selection(plan: Plan, notes: Notes) -> Method:
    """The method with the selection that it has by default. Structures are always compared in the whole model."""
    method = plan.method
    if not isinstance(method, TopV):
        return method
    selection = (method.selection or "local") if plan.structure is None else "global"
    changed: Any = {"selection": selection}
    if plan.structure is not None and method.selection == "local":  # the default of a method that is not the contract's
        name = plan.structure.structure
        notes.add(f"{name} are compared in all blocks together: selection is global, not {method.selection}")
    return method if method.selection == selection else replace(method, **changed)  # type: ignore[type-var]


def _check_density(plan: Plan, sizes: Sequence[int], selector: Selector, notes: Notes) -> float:
    """The density, if the model's matrices are large enough for it, or its heads and units small enough."""
    if plan.density is None:
        raise TypeError("a plan without a given mask has a density")
    structure = plan.structure
    if structure is not None and structure.density is not None:
        _check_structure_density(plan, structure, structure.density, sizes, selector, notes)
    reached = selector.nearest(plan.density)
    if not plan.allow_density_miss:
        kept = plan.method.kept(sizes, plan.density) if structure is None else round(reached * sum(sizes))
        remedy = "take a density that the model's matrices are large enough for, global selection"
        if structure is not None:
            least = LEAST[structure.structure]
            remedy = f"take {reached:.4g}, the nearest that whole {structure.structure} have, with {least}"
        check_density(plan.density, kept, sum(sizes), remedy)
    if structure is not None and abs(reached / plan.density - 1) > _DENSITY_TO_MENTION:
        whole = f"whole {structure.structure} have"
        notes.add(f"the density is {reached:.4g}, the nearest that {whole}, not {plan.density:g}")
    return plan.density


def _check_structure_density(
    plan: Plan, structure: StructureOptions, wanted: float, sizes: Sequence[int], selector: Selector, notes: Notes
) -> None:
    """Checks that whole heads and units can have about the density that is wanted of them, and a weight each."""
    if not isinstance(selector, SparseStructures) or plan.density is None:
        raise TypeError("a plan with a density of structures has structures and a density")
    if problem := selector.problem(sum(sizes)):
        raise CompressionError(Reason.DENSITY_NOT_REACHED, problem)
    name, reached = structure.structure, selector.density_of_structures(plan.density)
    if (problem := problem_with_density(name, wanted, reached)) and not plan.allow_density_miss:
        raise CompressionError(Reason.DENSITY_NOT_REACHED, f"structure_density {problem}")
    if abs(reached / wanted - 1) > _DENSITY_TO_MENTION:
        notes.add(f"the density of the {name} is {reached:.4g}, the nearest that they have, not {wanted:g}")


def _find_given_mask(plan: Plan, student: Loaded, notes: Notes) -> GivenMask | None:
    if plan.mask_from is None or not isinstance(plan.method, LockedMask):
        return None
    found = load_mask(
        plan.mask_from,
        plan.method,
        density=plan.density,
        student=student,
        weight_names=[f"{name}.weight" for name in prunable_layers(student.model, plan.include, plan.exclude)],
        objective=plan.objective,
        seed=plan.seed,
    )
    if plan.density is not None and abs(found.density / plan.density - 1) > _DENSITY_TO_MENTION:
        notes.add(f"the density is {found.density:.4g}, that of the mask, in place of {plan.density:g}")
    return found


def _resolve_baseline(
    plan: Plan, student: Loaded, model: ModelSource, settings: Settings, notes: Notes
) -> bool | SharedBaseline:
    """The shared baseline if this run can use it, else whether the run evaluates its own baseline."""
    baseline = plan.dense_baseline
    if not isinstance(baseline, SharedBaseline):
        return baseline
    why_not = baseline.why_not(model, plan.data)
    if why_not and baseline.required:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"baseline must be a dense model of the same model and data, got {baseline.name}, which {why_not}; submit "
            "without it, and the job trains its own baseline",
        )
    if why_not:
        notes.add(f"the dense metrics are those of this run's own dense baseline: {baseline.name} {why_not}")
        return True
    notes.add(baseline.note(settings, plan.seed, fine_tuned=student.fine_tuned))
    return baseline


def _resolve_teacher(
    teacher: Teacher, baseline: bool | SharedBaseline, passes: float, student: Loaded, train: Examples
) -> Teacher:
    """The teacher with a `Source`, unless it is the dense baseline, and with a weight for its hidden states."""
    given = teacher.hidden_states
    # Another named teacher may have been pretrained differently. Its hidden states then mean something else.
    shared = isinstance(baseline, SharedBaseline) and baseline.is_teacher and baseline.is_whole
    default = float(passes >= _PASSES_FOR_HIDDEN_STATES and (teacher.model is None or shared))
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
