"""Which uploads a job refers to."""

from __future__ import annotations

from mvprune.sources.schemes import UPLOAD
from mvprune.v1 import job_pb2

MODELS = ("model", "teacher.model", "locked_mask.mask_from.model")
DATA = ("dataset.train", "dataset.validation", "dataset.test")


def references(spec: job_pb2.CompressionSpec) -> dict[str, str]:
    """The references to uploads, by their fields of the spec."""
    models = (spec.model, spec.teacher.model, spec.locked_mask.mask_from.model)
    every = (*models, spec.dataset.train, spec.dataset.validation, spec.dataset.test)
    return {field: text for field, text in zip((*MODELS, *DATA), every, strict=True) if text.startswith(UPLOAD)}
