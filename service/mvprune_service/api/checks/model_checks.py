"""What was found out about the models of a job."""

from __future__ import annotations

from typing import NamedTuple

from mvprune.artifact.masks import Inspect
from mvprune.sources.known_models import Architecture, InspectedModel, ModelSize
from mvprune.v1 import job_pb2
from mvprune_service.api.messages import mapping


class ModelCheck(NamedTuple):
    """Facts about a model: its size and architecture, if they are known, or what is wrong with the reference."""

    size: job_pb2.ModelSize | None = None
    problem: str = ""
    architecture: Architecture | None = None

    @classmethod
    def of(cls, size: ModelSize | None) -> ModelCheck:
        """The facts about a model of this size; None: it is not known."""
        if size is None:
            return cls()
        known = size.architecture if isinstance(size, InspectedModel) else None
        return cls(mapping.model_size(size), architecture=known)


ModelChecks = dict[tuple[str, Inspect], ModelCheck]
"""By the reference and by what looked into the folder."""
