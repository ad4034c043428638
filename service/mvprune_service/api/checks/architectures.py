"""Checks of options against a model that the server has looked into."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mvprune.data.tasks import TASKS
from mvprune.sources.known_models import Architecture
from mvprune.sources.model_types import (
    ENCODER_DECODERS,
    TRIMMABLE,
    WITHOUT_CHECKPOINTING,
    name_without_head,
    names_outside,
    problem_with_checkpointing,
    problem_with_head,
    problem_with_trimming,
)
from mvprune.sources.sentence_transformers import SentenceEmbedding
from mvprune.spec.kept import kept_count, problem_with_kept
from mvprune.spec.patterns import BLOCK, parse_pattern, problem_with_heads
from mvprune.spec.selected_layers import select_layers
from mvprune.spec.structures import (
    BLOCK_SIZE,
    KINDS,
    LAYER_CLASSES,
    SHARING,
    Counts,
    Part,
    nearest_density,
    parts_of,
    problem_with_block_size,
    problem_with_density,
    problem_with_selection,
    problem_with_structure,
)
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation

_NONE = Counts(0, 0, 0)


def check_architecture(
    spec: job_pb2.CompressionSpec, model: Architecture, *, in_sweep: bool = False
) -> Iterator[Violation]:
    """Whether a model has what the options need. The worker checks it again, by the same rules.

    Args:
        model: the model.
        in_sweep: whether the job is a point of a sweep, where a density that a structure cannot have fails by itself.
    """
    yield from _check_head(spec, model)
    has_head = spec.task not in TASKS or TASKS[spec.task].kind.head != ""
    if not has_head:
        kind = model.model_types[0]
        model = replace(model, shapes={name_without_head(name, kind): size for name, size in model.shapes.items()})
    types, structure = model.model_types, job_pb2.CompressionSpec.Structure.Name(spec.structure).lower()
    if spec.structure:
        problem = problem_with_structure(
            structure,
            types[0],
            is_known=types[0] not in ENCODER_DECODERS and not LAYER_CLASSES.keys().isdisjoint(types),
            shares_layers=not set(SHARING).isdisjoint(types),
        )
        if problem:
            yield Violation("job.spec.structure", problem)
    block_size = spec.structure_block_size if spec.HasField("structure_block_size") else BLOCK_SIZE
    if spec.structure == job_pb2.CompressionSpec.BLOCKS_AND_UNITS and model.head_size and block_size > 0:
        problem = problem_with_block_size(block_size, model.head_size, "the model")
        yield from [Violation("job.spec.structure_block_size", problem)] if problem else []
    if spec.trim_positions and types[0] not in TRIMMABLE:
        yield Violation("job.spec.trim_positions", problem_with_trimming(types[0]))
    if spec.training.gradient_checkpointing and types[0] in WITHOUT_CHECKPOINTING:
        yield Violation("job.spec.training.gradient_checkpointing", problem_with_checkpointing(types[0]))
    if model.shapes:
        yield from _check_layers(spec, structure, model, in_sweep=in_sweep, has_head=has_head)


def check_kept(spec: job_pb2.CompressionSpec, prunable: int, *, is_exact: bool) -> Iterator[Violation]:
    """Whether the density can be reached where all weights, or blocks, are compared with each other. The worker checks
    what local selection gives; the densities of structures have a rule of their own.

    Args:
        prunable: weights that are pruned.
        is_exact: whether these are all; else there may be fewer.
    """
    density, block = spec.target_density, BLOCK if spec.pattern == f"1x{BLOCK}" else 1
    if spec.allow_density_miss or spec.structure or not 0 < density <= 1 or spec.WhichOneof("method") == "locked_mask":
        return
    kept = kept_count(prunable // block, density) * block
    if is_exact or not kept:
        problem = problem_with_kept(density, kept, prunable)
        yield from [Violation("job.spec.target_density", problem)] if problem else []


def _check_head(spec: job_pb2.CompressionSpec, model: Architecture) -> Iterator[Violation]:
    """Whether the model can have the head of the task, which may not be known: another violation."""
    if found := TASKS.get(spec.task):
        kind, name = model.model_types[0], found.name
        problem = problem_with_head(found.kind.head, name, kind, is_decoder=model.is_decoder)
        if not found.kind.head and isinstance(model.vectors, str):
            problem = problem or model.vectors
        yield from [Violation("job.spec.model", problem)] if problem else []
    if spec.prompt_name and not isinstance(model.vectors, str):
        try:
            (model.vectors or SentenceEmbedding()).prompt(spec.prompt_name)
        except ValueError as error:
            yield Violation("job.spec.prompt_name", str(error).removeprefix("prompt_name "))


def _check_layers(
    spec: job_pb2.CompressionSpec, structure: str, model: Architecture, *, in_sweep: bool, has_head: bool
) -> Iterator[Violation]:
    """Whether include and exclude leave layers to prune, which the structure and the pattern can have."""
    kind, names = model.model_types[0], tuple(model.shapes)
    outside = names_outside(kind, has_head=has_head)  # more than the model has: which ones, depends on the task
    found = select_layers([(name,) for name in (*names, *outside)], (), spec.include, spec.exclude)
    if found.problem:
        yield Violation(f"job.spec.{found.field}", found.problem)
        return
    if spec.structure and kind in LAYER_CLASSES:
        parts = list(parts_of(names, LAYER_CLASSES[kind]))
        if parts and (problem := problem_with_selection(structure, parts, found.names)):
            yield Violation(f"job.spec.{'exclude' if spec.exclude else 'include'}", problem)
        elif not (in_sweep or spec.allow_density_miss):
            yield from _check_density(
                spec, structure, model, [part for part in parts if part.layers[-1] in found.names]
            )
    if not in_sweep and model.shapes.keys() >= {*found.names}:
        yield from check_kept(spec, sum(math.prod(model.shapes[name]) for name in found.names), is_exact=True)
    if spec.pattern:
        try:
            pattern = parse_pattern(spec.pattern)
        except ValueError:
            return  # another violation
        if spec.structure and pattern.density is not None:
            return  # another violation
        rows = {name: model.shapes[name][1] for name in found.names if name in model.shapes}
        problem = pattern.problem_with_rows(rows)
        if "heads" in KINDS.get(structure, ()) and model.head_size % BLOCK:
            problem = problem or problem_with_heads(model.head_size, "the model")
        yield from [Violation("job.spec.pattern", problem)] if problem else []


def _check_density(
    spec: job_pb2.CompressionSpec, structure: str, model: Architecture, parts: Sequence[Part]
) -> Iterator[Violation]:
    """Whether whole heads, units or layers have the density, or that of the structures."""
    field = "structure_density" if spec.HasField("structure_density") else "target_density"
    density, chosen = getattr(spec, field), [part for part in parts if part.kind in KINDS[structure]]
    if structure == "blocks_and_units" or not chosen or model.head_size < 1 or not 0 < density <= 1:
        return  # blocks have almost any density
    if structure == "layers":
        reached = nearest_density(_NONE, Counts(1, len(chosen), 1), density)
    else:
        sizes = {"heads": model.head_size, "units": BLOCK if spec.pattern else 1}
        heads, units = (
            _counts([part for part in chosen if part.kind == kind], model, size) for kind, size in sizes.items()
        )
        reached = nearest_density(heads, units, density)
    problem = problem_with_density(structure, density, reached)
    yield from [Violation(f"job.spec.{field}", problem)] if problem else []


def _counts(parts: Sequence[Part], model: Architecture, size: int) -> Counts:
    """All heads, or all units, with `size` columns each."""
    number = sum(model.shapes[part.layers[-1]][1] // size for part in parts)
    weights = sum(math.prod(model.shapes[layer]) for part in parts for layer in part.layers)
    return Counts(len(parts), number, weights // max(number, 1))
