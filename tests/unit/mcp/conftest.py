"""Fixtures of this folder."""

from tests.unit.client.scripted_server import client, fake  # noqa: F401 (fixtures)
