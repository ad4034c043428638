"""Fixtures of this folder."""

from tests.unit.client.scripted_server import client, fake, mvpctl, succeeds  # noqa: F401 (fixtures)

from .documented_server import answers  # noqa: F401 (a fixture)
