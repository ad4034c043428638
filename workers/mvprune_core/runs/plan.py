"""Decisions about a run before anything is trained, by its model and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields, replace
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import Base, ModelSource
from mvprune.artifact.structures import Structures
from mvprune.data.run_length import default_cooldown, preset_note, too_short
from mvprune.runtime.rounding import rounded_layers
from mvprune.sources.model_types import problem_with_checkpointing
from mvprune.spec.kept import REMEDY
from mvprune.spec.patterns import BLOCK, NOfM, parse_pattern
from mvprune.spec.structures import LEAST, problem_with_density
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.notes import Notes
from mvprune_core.base.settings import BASE_WIDTH, Settings, Training
from mvprune_core.base.storage import Cache
from mvprune_core.methods import LockedMask, Method, TopV
from mvprune_core.models.forward import padding_side
from mvprune_core.models.loading import Loaded, Source, longest_input
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.models.token_cache import cached_examples, tokenizer_digest
from mvprune_core.models.value_head import NO_VALUE_HEAD, ValueHead, find_value_head
from mvprune_core.pruning.patterns import InPattern, check_pattern
from mvprune_core.pruning.selectors import WEIGHTS, Selector, Weights
from mvprune_core.pruning.sparse_structures import SparseStructures
from mvprune_core.pruning.structure_kinds import Structure, new_selector, pruned_structures
from mvprune_core.runs.baselines import SharedBaseline
from mvprune_core.runs.given_masks import GivenMask, find_mask, load_mask, load_start
from mvprune_core.runs.given_model import GivenModel
from mvprune_core.runs.precision import Attempt, with_precision
from mvprune_core.runs.resolved import Examined, Request, ResolvedRun, pruned_layers
from mvprune_core.runs.spec import Spec
from mvprune_core.runs.teaching import check_teaching, resolve_teacher, without_labels
from mvprune_core.storing.accounting import check_density
from mvprune_core.storing.positions import can_trim_positions, check_positions, rows_for
from mvprune_core.storing.reopening import Sample
from mvprune_core.storing.target_size import CANDIDATES, check_target
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.probes import probes
from mvprune_core.training.precision import with_length_buckets

_DENSITY_TO_MENTION = 1e-3  # relative difference from the density that was asked for


def resolve(
    request: Request, student: Loaded, source: Future[ModelSource], cache: Cache, attempt: Attempt, notes: Notes
) -> ResolvedRun:
    """Checks a request against the model and the data, and fills in its defaults. Trains nothing.

    Args:
        request: what is asked for.
        student: the model of `request.source`; left in evaluation mode.
        source: provenance of that model, computed meanwhile.
        cache: for tokenised data.
        attempt: keeps the precision that an earlier one has measured.
        notes: receives notes on what is chosen.

    Raises:
        ValueError, CompressionError: see `compress`.
    """
    spec, data, objective = request.spec, request.data, request.objective
    training, teacher = spec.training, spec.distilled_from
    longest = training.max_length or objective.input_length(student.config)
    training = replace(training, max_length=longest)
    given_mask, start = _find_given_mask(request, student, notes), _find_start(request, student, notes)
    structures = _find_structures(spec, student)
    layers = pruned_layers(student.model, spec, structures)
    selector = _selector(spec, student, structures, layers)
    sizes = [layer.weight.numel() for layer in layers.values()]
    density = _check_density(spec, sizes, selector, notes) if given_mask is None else given_mask.density
    if training.gradient_checkpointing and not student.model.supports_gradient_checkpointing:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"training.gradient_checkpointing {problem_with_checkpointing(type(student.model).__name__)}",
        )
    if spec.rounds and not rounded_layers(student.model):
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            "activations must be fp32 for a model without a layer that the sparse runtime can round, an nn.Linear in a "
            f"numbered block, got int8 for {type(student.model).__name__}; leave it out",
        )
    if spec.trim_positions:
        check_positions(student.model)
    max_length = input_length(request, request.source, student, longest)
    if (asked := spec.training.max_length) is not None and max_length < asked:
        notes.add(f"inputs have at most {max_length:,} tokens, as many as the model takes, not {asked:,} (max_length)")
    if spec.target_bytes is not None:
        check_target(
            spec.target_bytes,
            student.model,
            student.tokenizer,
            {f"{name}.weight": layer.weight.numel() for name, layer in layers.items()},
            density,
            CANDIDATES[-1] if spec.weight_dtype is None else spec.coding.values,
            whole=spec.structure is not None or spec.pattern is not None,
            trimmed=spec.trim_vocabulary,
            rows=rows_for(student.model, max_length) if can_trim_positions(student.model) else None,
        )
    tokenizer = tokenizer_digest(student.tokenizer)
    train = cached_examples(cache, objective, data, student, max_length, "train", tokenizer)
    validation = cached_examples(cache, objective, data, student, max_length, "validation", tokenizer)
    side = padding_side(student.model, (train.texts, validation, probes(student.tokenizer, max_length)))
    train, validation = (replace(split, padding_side=side) for split in (train, validation))
    given = GivenModel(student, source, tokenizer, max_length, request.device, cache)
    objective = given.measured_by(objective, validation)
    test = None
    if (tested := getattr(data, "test", None)) is not None:  # data of a plugin may have no such attribute
        of_test = replace(objective, data=tested)
        read = cached_examples(cache, of_test, tested, student, max_length, "validation", tokenizer)
        read = replace(read, padding_side=padding_side(student.model, (read, probes(student.tokenizer, max_length))))
        test = Examined(given.measured_by(of_test, read), read)
    on_the_way = Examined(objective, validation)
    counts = (spec.evaluated_examples, objective.enough_on_the_way, len(validation))
    if (count := min(each for each in counts if each is not None)) < len(validation):
        few = objective.shortened(count)
        read = cached_examples(cache, few, few.data, student, max_length, "validation", tokenizer)
        on_the_way = Examined(few, replace(read, padding_side=side))
    notes.add(*objective.notes_on(train))
    width = getattr(student.config, "hidden_size", BASE_WIDTH)
    settings = training.settings(data.task, width, len(train))
    settings = with_precision(settings, request, student, layers, train, attempt, notes)
    total_steps = settings.total_steps(len(train))
    method = _with_cooldown(_with_selection(spec, notes), training)
    method.schedule.check(total_steps, method.facts)
    model = source.result()
    baseline = _resolve_baseline(request, student, model, settings, notes)
    if training.preset is not None:
        notes.add(preset_note(data.task, len(train), settings.batch_size, training.preset))
    if density < 1 and method.schedule.shape != "one_shot":
        note = too_short(
            total_steps,
            density,
            settings.batch_size,
            has_pairs=data.task.kind.has_pairs(data),
            fine_tuned=student.fine_tuned,
        )
        notes.add(*[note] if note else [])
    method = method.for_run(total_steps)
    notes.add(*method.notes(sizes, total_steps * settings.batch_size, selector.block))
    passes = settings.passes(len(train))
    if teacher is not None:
        teacher = teacher if objective.has_labels else without_labels(teacher, data.task.name)
        check_teaching(request, teacher, student, train, max_length, (settings.batch_size, spec.seed, total_steps))
    run = ResolvedRun(
        spec=spec,
        objective=objective,
        source=request.source,
        device=request.device,
        dense_baseline=baseline,
        method=method,
        density=density,
        teacher=teacher and resolve_teacher(teacher, baseline, passes, student, train),
        model=model,
        config=student.config,
        tokenizer=tokenizer,
        fine_tuned=student.fine_tuned,
        is_kept=request.keeps(student),
        max_length=max_length,
        train=with_length_buckets(train, settings.precision),
        validation=validation,
        sample=Sample.of(validation, student.tokenizer, max_length),
        settings=settings,
        dense_settings=settings,
        total_steps=total_steps,
        base=Base(request.source.folder) if spec.delta else None,
        given_mask=given_mask,
        start=start,
        structures=structures,
        selector=selector,
        value_head=_find_value_head(request, student, train, notes),
        test=test,
        on_the_way=on_the_way,
    )
    if run.prunes_dense:
        notes.add(f"pruning goes on from the dense model and its head: {method.name} prunes models that are trained")
    is_trained = student.fine_tuned or run.prunes_dense or (start is not None and start.has_head)
    recovers = is_trained and method.samples_inputs
    return replace(run, settings=training.recovery(settings)) if recovers else run


def _find_value_head(request: Request, student: Loaded, train: Examples, notes: Notes) -> ValueHead | None:
    scale = request.objective.label_scale(student.config)
    if scale is None or request.keeps(student):
        return None
    head = find_value_head(student.model, scale, train)
    notes.add(f"the labels are not standardised: {NO_VALUE_HEAD}" if head is None else head.note)
    return head


def _with_cooldown(method: Method, training: Training) -> Method:
    """The method with the cooldown that the preset has by default."""
    schedule, has_schedule = method.schedule, "schedule" in {field.name for field in fields(method)}  # type: ignore[arg-type]
    if schedule.cooldown is not None or schedule.shape == "one_shot" or not has_schedule:
        return method
    changed: Any = {"schedule": replace(schedule, cooldown=default_cooldown(training.preset or "short"))}
    return replace(method, **changed)  # type: ignore[type-var]


def input_length(request: Request, source: Source, loaded: Loaded, max_length: int) -> int:
    """`max_length`, or the longest input of the model if that is shorter.

    Raises:
        CompressionError: INVALID_MODEL, the model's inputs are too short for the task.
    """
    length = longest_input(loaded, max_length)
    kind = request.data.task.kind
    if length < kind.min_tokens <= max_length:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"the model {source.name!r} must take inputs of at least {kind.min_tokens} tokens for {kind.name}, got "
            f"{length}",
        )
    return length


def _find_structures(spec: Spec, student: Loaded) -> tuple[Structures, ...]:
    if spec.structure is None:
        return ()
    layers = prunable_layers(student.model, spec.include, spec.exclude)
    return tuple(pruned_structures(student.model, layers, spec.structure, in_blocks=spec.pattern is not None))


def _selector(
    spec: Spec, student: Loaded, structures: Sequence[Structures], layers: Mapping[str, nn.Linear | Conv1D]
) -> Selector:
    pattern = None if spec.pattern is None else parse_pattern(spec.pattern)
    if pattern is not None:
        check_pattern(pattern, layers)
    if spec.structure is not None:
        return new_selector(student.model, structures, spec.structure, spec)
    if isinstance(pattern, NOfM):
        return InPattern(pattern)
    return WEIGHTS if pattern is None else Weights(BLOCK)


def _with_selection(spec: Spec, notes: Notes) -> Method:
    """The method with the selection that it has by default. Structures are always compared in the whole model, and so
    are weights of a model that was pruned before, whose matrices have different densities."""
    method = spec.chosen_method
    if not isinstance(method, TopV):
        return method
    default = "global" if spec.start_from else "local"
    selection = (method.selection or default) if spec.structure is None else "global"
    changed: Any = {"selection": selection}
    if spec.structure is not None and method.selection == "local":  # the default of a method that is not the contract's
        name = spec.structure
        notes.add(f"{name} are compared in all blocks together: selection is global, not {method.selection}")
    return method if method.selection == selection else replace(method, **changed)  # type: ignore[type-var]


def _check_density(spec: Spec, sizes: Sequence[int], selector: Selector, notes: Notes) -> float:
    """The density, if the model's matrices are large enough for it, or its heads and units small enough."""
    if spec.density is None:
        raise TypeError("a spec without a given mask has a density")
    structure = spec.structure
    if structure is not None and spec.structure_density is not None:
        _check_structure_density(spec, structure, spec.structure_density, sizes, selector, notes)
    reached = selector.nearest(spec.density)
    if not spec.allow_density_miss:
        blocks = [size // selector.block for size in sizes]
        of_blocks = spec.chosen_method.kept(blocks, spec.density) * selector.block
        kept = of_blocks if structure is None else round(reached * sum(sizes))
        remedy = REMEDY
        if structure is not None:
            least = LEAST[structure]
            remedy = f"take {reached:.4g}, the nearest that whole {structure} have, with {least}"
        check_density(spec.density, kept, sum(sizes), remedy)
    if structure is not None and abs(reached / spec.density - 1) > _DENSITY_TO_MENTION:
        whole = f"whole {structure} have"
        notes.add(f"the density is {reached:.4g}, the nearest that {whole}, not {spec.density:g}")
    return spec.density


def _check_structure_density(
    spec: Spec, name: Structure, wanted: float, sizes: Sequence[int], selector: Selector, notes: Notes
) -> None:
    """Checks that whole heads and units can have about the density that is wanted of them, and a weight each."""
    if not isinstance(selector, SparseStructures) or spec.density is None:
        raise TypeError("a spec with a density of structures has structures and a density")
    if problem := selector.problem(sum(sizes)):
        raise CompressionError(Reason.DENSITY_NOT_REACHED, problem)
    reached = selector.density_of_structures(spec.density)
    if (problem := problem_with_density(name, wanted, reached)) and not spec.allow_density_miss:
        raise CompressionError(Reason.DENSITY_NOT_REACHED, f"structure_density {problem}")
    if abs(reached / wanted - 1) > _DENSITY_TO_MENTION:
        notes.add(f"the density of the {name} is {reached:.4g}, the nearest that they have, not {wanted:g}")


def _given(load: Callable[..., GivenMask], request: Request, student: Loaded, *source: object) -> GivenMask:
    spec = request.spec
    return load(
        *source,
        density=spec.density,
        student=student,
        layers=prunable_layers(student.model, spec.include, spec.exclude),
        objective=request.objective,
        seed=spec.seed,
        block=1 if spec.pattern is None else BLOCK,
    )


def _find_given_mask(request: Request, student: Loaded, notes: Notes) -> GivenMask | None:
    spec = request.spec
    method = spec.chosen_method
    if spec.mask_from is None or not isinstance(method, LockedMask):
        return None
    found = _given(load_mask, request, student, find_mask(spec.mask_from, spec.mask_revision), method)
    if spec.density is not None and abs(found.density / spec.density - 1) > _DENSITY_TO_MENTION:
        notes.add(f"the density is {found.density:.4g}, that of the mask, in place of {spec.density:g}")
    return found


def _find_start(request: Request, student: Loaded, notes: Notes) -> GivenMask | None:
    spec = request.spec
    if spec.start_from is None:
        return None
    found = _given(load_start, request, student, find_mask(spec.start_from, None))
    if spec.keep_fine_tuned:
        if not found.has_head:
            raise CompressionError(
                Reason.INVALID_MODEL,
                "start_from must be a model for the classes of the data with keep_fine_tuned, got other classes",
            )
        return found
    head = "with its head" if found.has_head else "with a new head, as its classes are others"
    notes.add(f"pruning goes on from a model of density {found.density:.4g}, {head}; its zeros stay (start_from)")
    return found


def _resolve_baseline(
    request: Request, student: Loaded, model: ModelSource, settings: Settings, notes: Notes
) -> bool | SharedBaseline:
    """The shared baseline if this run can use it, else whether the run evaluates its own baseline."""
    baseline = request.dense_baseline
    if not isinstance(baseline, SharedBaseline):
        return baseline
    why_not = baseline.why_not(model, request.data)
    if why_not and baseline.required:
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"baseline must be a dense model of the same model and data, got {baseline.name}, which {why_not}; submit "
            "without it, and the job trains its own baseline",
        )
    if why_not:
        notes.add(f"the dense metrics are those of this run's own dense baseline: {baseline.name} {why_not}")
        return True
    notes.add(baseline.note(settings, request.objective, request.spec.seed, fine_tuned=student.fine_tuned))
    return baseline
