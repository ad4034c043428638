"""Fixtures of this folder."""

from tests.unit.artifact.conftest import pruned_model, result, save  # noqa: F401 (fixtures)
