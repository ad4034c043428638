"""The density of a job whose other options give it."""

from __future__ import annotations

from mvprune.spec.patterns import parse_pattern
from mvprune.v1 import job_pb2


def fill_density(spec: job_pb2.CompressionSpec) -> str:
    """Sets the density to that of the pattern, where only that is given. Returns a note on it; "" otherwise.

    A pattern that is wrong is left to those who check the options.
    """
    if spec.target_density or not spec.pattern or spec.locked_mask.mask_from.WhichOneof("source") is not None:
        return ""
    try:
        pattern = parse_pattern(spec.pattern)
    except ValueError:
        return ""
    if pattern.density is None:
        return ""
    spec.target_density = pattern.density
    return pattern.density_note
