"""Fixtures of this folder."""

from tests.unit.artifact.conftest import pruned_model, result  # noqa: F401 (fixtures)
