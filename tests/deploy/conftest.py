"""`make deploy-check` runs this folder. A plain `pytest` runs only the tests of the Helm chart, which take a minute. It
leaves out the validators and the build of the images; what else is fast is in tests/unit/project/test_deploy.py."""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The others are left out unless they are asked for by name."""
    named = any("deploy" in str(argument) for argument in config.invocation_params.args)
    is_chart = collection_path.name.startswith("test_helm_")
    return True if collection_path.parent == _FOLDER and not is_chart and not named else None
