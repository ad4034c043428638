"""The whole schema: the metadata with the tables of all modules."""

from __future__ import annotations

from mvprune_service.db.tables import artifacts, attempts, audit, issuers, jobs, server, sweeps, uploads, webhooks
from mvprune_service.db.tables.base import METADATA

__all__ = ["METADATA", "artifacts", "attempts", "audit", "issuers", "jobs", "server", "sweeps", "uploads", "webhooks"]
