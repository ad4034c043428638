"""`make deploy-check` runs this folder: validators and a build of the images. A plain `pytest` leaves it out; what is
fast is in tests/unit/project/test_deploy.py."""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Everything is left out unless it is asked for by name."""
    named = any("deploy" in str(argument) for argument in config.invocation_params.args)
    return True if collection_path.parent == _FOLDER and not named else None
