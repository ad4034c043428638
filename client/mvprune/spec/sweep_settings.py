"""What `mvpctl sweep create` and the `sweep` section of job files take beside the parameters of jobs."""

from __future__ import annotations

from mvprune.spec.parameters import PARAMETERS, SETTINGS

POINTS, WITHOUT = "points", "without"
"""Settings that are lists of cells."""
AXES = {one.name: one for one in PARAMETERS.values() if all(field.startswith("spec.") for field in one.fields)}
"""The parameters that may differ from job to job."""
POLICY = tuple(one.name for one in SETTINGS.values() if one.fields[0].startswith("sweep.policy."))
"""The settings of the policy."""
CHANGEABLE = tuple(name for name in POLICY if name != "own_baselines")
"""The settings that may change while a sweep is active."""
BY_FIELD = {field: one for one in SETTINGS.values() for field in one.fields}
"""The settings by their fields of CreateSweepRequest."""
