"""What is to be compressed and how."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mvprune.artifact import Coding
from mvprune_core.distillation import Teacher
from mvprune_core.methods import Method
from mvprune_core.models import Source
from mvprune_core.tasks import Objective, TaskData


@dataclass(frozen=True)
class Plan:
    """The arguments of `compress`, resolved."""

    data: TaskData
    objective: Objective
    source: Source
    method: Method
    density: float
    teacher: Teacher | None
    seed: int
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    device: torch.device
    coding: Coding
    trim_vocabulary: bool
    delta: bool
    allow_density_miss: bool
