"""The example of contributing/executor.md."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from mvprune_service.config import Settings
from mvprune_service.executors import ExecutorName, open_executor
from mvprune_service.executors.base import Launch, Observation, Phase

from ....waiting import until

PAGE = Path(__file__).parents[4] / "contributing" / "executor.md"
NICENESS = "import os, sys; sys.exit(os.nice(0))"


def test_the_example_of_the_page_runs_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (name,) = re.findall(r"`executors/(\w+)\.py` runs", PAGE.read_text())
    module = ModuleType(f"mvprune_service.executors.{name}")
    exec(compile(example, str(PAGE), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 (our own page)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    settings = Settings(home=tmp_path).model_copy(update={"executor": name})
    executor = open_executor(settings)
    executor.submit(Launch("a", (sys.executable, "-c", NICENESS), {}))
    until(lambda: executor.observe("a").phase is Phase.EXITED, "it ended")
    assert executor.observe("a") == Observation(Phase.EXITED, min(19, os.nice(0) + 10))
    executor.close()


@pytest.mark.parametrize("name", get_args(ExecutorName))
def test_every_name_of_the_setting_is_a_module(name: str) -> None:
    module = __import__(f"mvprune_service.executors.{name}", fromlist=["from_settings"])
    assert callable(module.from_settings)
    assert Settings(executor=name).executor == name
