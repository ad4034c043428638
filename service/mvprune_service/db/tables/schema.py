"""The whole schema: the metadata with the tables of all modules."""

from __future__ import annotations

from mvprune_service.db.tables import server_models, sweep_models, upload_models
from mvprune_service.db.tables.models import METADATA

__all__ = ["METADATA", "server_models", "sweep_models", "upload_models"]
