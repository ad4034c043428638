"""contributing/sweep-option.md: its steps, in a copy of the repository, add a setting of sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spec.recipe import Copy, blocks, mvpctl

CHECK = """
from mvprune.client.sweep_convert import _policy
from mvprune.common.exceptions import InvalidArgument
from mvprune.spec.parameters import SETTINGS
from mvprune.spec.sweep_message import create_sweep_request, update_policy_request
from mvprune.spec.sweep_settings import CHANGEABLE
from mvprune.v1 import sweep_pb2
from mvprune_service.api.checks.sweep_checks import check_policy_of_sweep

assert (SETTINGS["max_cancelled"].flag, "max_cancelled" in CHANGEABLE) == ("--max-cancelled", True)
made = create_sweep_request("projects/p", "m", 0.1, {"policy": {"max_cancelled": 3}})
assert made.sweep.policy.max_cancelled == 3
assert update_policy_request("projects/p/sweeps/s", "", max_cancelled=None).update_mask.paths == ["max_cancelled"]
assert _policy(made.sweep.policy).max_cancelled == 3
assert _policy(sweep_pb2.SweepPolicy()).max_cancelled is None
(refused,) = check_policy_of_sweep(sweep_pb2.SweepPolicy(max_cancelled=-1), made.sweep.spec)
assert refused == ("sweep.policy.max_cancelled", "must be from 0 to 1,000,000, got -1")
"""


@pytest.mark.slow
def test_the_steps_of_the_page_add_a_setting(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    (field,), (generate, _) = blocks("sweep-option.md", "proto"), blocks("sweep-option.md", "sh")
    copy.insert("proto/mvprune/v1/sweep.proto", "\nmessage SweepPolicy {", field)
    assert generate == "make proto\n"
    copy.make_proto()
    copy.run(CHECK)
    for command in ("create", "update"):
        assert "--max-cancelled N" in copy.run(mvpctl("sweep", command, "--help"))
    copy.shows("max_cancelled", "docs/job-file.schema.json", "client/mvprune/spec/sweep_choices.py")
