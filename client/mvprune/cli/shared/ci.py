"""The run of a CI system that a command is part of."""

from __future__ import annotations

import os

# The variable that tells a run from others, and those that tell its pipeline from others where that is not enough.
_RUNS = (
    ("GITHUB_RUN_ID", "GITHUB_REPOSITORY"),
    ("CI_PIPELINE_ID", "CI_SERVER_URL"),  # GitLab
    ("BUILD_ID", "JOB_NAME"),  # Jenkins
    ("BUILD_BUILDID", "SYSTEM_COLLECTIONURI"),  # Azure
    ("BUILDKITE_BUILD_ID",),
    ("CIRCLE_WORKFLOW_ID",),
)
RUN_VARIABLES = tuple(names[0] for names in _RUNS)


def run_id() -> str:
    """What is the same whenever a step of this run is run again, and different in every other run; "" outside of CI."""
    for names in _RUNS:
        if os.environ.get(names[0]):
            return " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
    return ""
