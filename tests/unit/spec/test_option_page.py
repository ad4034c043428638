"""contributing/option.md: its steps, in a copy of the repository, add an option."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spec.recipe import Copy, blocks, mvpctl

CHECK = """
import sys
from mvprune.spec.lookup import flags_of
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2
from mvprune_core.base.settings import Training
from mvprune_service.api.checks.options import check_options

added = PARAMETERS["label_smoothing"]
assert (added.flag, added.default, added.group) == ("--label-smoothing", "0", "training")
assert flags_of("job.spec.training.label_smoothing") == "--label-smoothing"
spec = job_pb2.CompressionSpec(target_density=0.1, movement={}, training={"label_smoothing": 0.6})
(violation,) = check_options(spec, None)
assert violation == ("job.spec.training.label_smoothing", "must be from 0 to 0.5, got 0.6")
assert Training(label_smoothing=0.1).label_smoothing == 0.1
assert Training().label_smoothing == float(added.default)
"""

CHECK_RUN = """
from typing import get_type_hints
from mvprune.data.tasks import get_task
from mvprune.v1 import job_pb2
from mvprune_core import Spec
from mvprune_core.runs.spec import SpecKeywords
from mvprune_workers.job import complete_spec, spec_of

message = job_pb2.CompressionSpec(target_density=0.1, movement={}, trim_pooler=True)
asked = spec_of(message, get_task("sst2"))
assert asked == Spec(density=0.1, method=asked.method, trim_pooler=True)
assert "trim_pooler" in get_type_hints(SpecKeywords)
assert complete_spec(message, asked)["trim_pooler"] is True
"""


@pytest.mark.slow
def test_the_steps_of_the_page_add_an_option(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    (field, of_run), (setting,), (generate, _) = (
        blocks("option.md", language) for language in ("proto", "python", "sh")
    )
    copy.insert("proto/mvprune/v1/job.proto", "\nmessage Training {", field)
    copy.insert("proto/mvprune/v1/job.proto", "\nmessage CompressionSpec {", of_run)
    copy.insert("workers/mvprune_core/base/settings.py", "\nclass Training:", setting)
    assert generate == "make proto\n"
    copy.make_proto()
    copy.run(CHECK + CHECK_RUN)
    assert "--label-smoothing F" in copy.run(mvpctl("submit", "--help-all"))
    copy.shows(
        "label_smoothing",
        "docs/submit.md",
        "docs/job-file.md",
        "docs/job-file.schema.json",
        "client/mvprune/spec/options.py",
    )
