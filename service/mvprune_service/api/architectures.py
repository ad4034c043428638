"""Checks of options against a model that the server has looked into."""

from __future__ import annotations

from collections.abc import Iterator

from mvprune.common.patterns import Pattern
from mvprune.common.structures import (
    BLOCK_SIZE,
    LAYER_CLASSES,
    SHARING,
    problem_with_block_size,
    problem_with_structure,
)
from mvprune.sources.known_models import Architecture
from mvprune.v1 import job_pb2
from mvprune_service.api.errors import Violation


def check_architecture(spec: job_pb2.CompressionSpec, model: Architecture) -> Iterator[Violation]:
    """Whether a model has what the structure and the pattern need. The worker checks it again, by the same rules.

    Which matrices include and exclude leave, only the worker knows.
    """
    types = model.model_types
    if spec.structure:
        structure = job_pb2.CompressionSpec.Structure.Name(spec.structure).lower()
        problem = problem_with_structure(
            structure,
            types[0],
            is_known=not LAYER_CLASSES.keys().isdisjoint(types),
            shares_layers=not set(SHARING).isdisjoint(types),
        )
        yield from [Violation("job.spec.structure", problem)] if problem else []
    block_size = spec.structure_block_size if spec.HasField("structure_block_size") else BLOCK_SIZE
    if spec.structure == job_pb2.CompressionSpec.BLOCKS_AND_UNITS and model.head_size and block_size > 0:
        problem = problem_with_block_size(block_size, model.head_size, "the model")
        yield from [Violation("job.spec.structure_block_size", problem)] if problem else []
    if spec.pattern and not (spec.structure or spec.include or spec.exclude):
        try:
            problem = Pattern.parse(spec.pattern).problem_with_rows(model.rows)
        except ValueError:
            return  # another violation
        yield from [Violation("job.spec.pattern", problem)] if problem else []
