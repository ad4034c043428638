"""The whole schema: the metadata with the tables of all modules."""

from __future__ import annotations

from mvprune_service.db import sweep_models
from mvprune_service.db.models import METADATA

__all__ = ["METADATA", "sweep_models"]
