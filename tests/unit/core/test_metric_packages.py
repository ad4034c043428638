"""A package of the metrics that is installed, but cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.tasks.test_token_classification import LABELS
from tests.unit.core.tasks.test_token_classification import sentences as tagged
from tests.unit.core.training_runs import SHORT

from mvprune.data.loading import ClassificationData, TokenClassificationData
from mvprune.data.tasks import get_task
from mvprune_core import Callback, CompressionError, Progress, Reason, Training, compress
from mvprune_core.evaluation import CannotEvaluate, evaluate

FLAW = "numpy.dtype size changed, may indicate binary incompatibility"
SAID = (
    rf"^metrics need the package sklearn, whose import fails \(ImportError: {FLAW}\): "
    "pip install --force-reinstall scikit-learn$"
)


@pytest.fixture
def break_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts an sklearn whose import fails before the installed one."""

    def do() -> None:
        package = tmp_path / "broken" / "sklearn"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"raise ImportError({FLAW!r})\n")
        for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(package.parent)

    return do


class Steps(Callback):
    """Counts the steps of a run."""

    def __init__(self) -> None:
        self.count = 0

    def on_step(self, progress: Progress) -> None:
        self.count += 1


@pytest.mark.slow
def test_it_ends_a_run_at_its_start(
    break_package: Callable[[], None], model_folder: Path, data: ClassificationData
) -> None:
    break_package()
    steps, long = Steps(), Training(max_steps=2000, batch_size=32)
    with pytest.raises(CompressionError, match=SAID) as raised:
        compress(model_folder, data, method="magnitude", density=0.5, training=long, callback=steps)
    assert raised.value.reason is Reason.MISSING_DEPENDENCY
    assert steps.count < 1000, "long before the first evaluation"


@pytest.mark.slow
def test_it_ends_an_evaluation_before_it_begins(
    break_package: Callable[[], None], make: Callable[..., tuple[Any, Path]], tmp_path: Path
) -> None:
    _, artifact = make()
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\na good film\t1\na bad film\t0\n")
    break_package()
    read: list[int] = []
    with pytest.raises(CannotEvaluate, match=SAID):
        evaluate(artifact, tmp_path / "dev.tsv", progress=lambda done, total: read.append(done))
    assert read == []


def test_it_does_not_matter_to_metrics_that_do_not_use_it(
    break_package: Callable[[], None], model_folder: Path
) -> None:
    break_package()
    data = TokenClassificationData(get_task("ner"), LABELS, tagged(60, 1), tagged(20, 2))
    result = compress(model_folder, data, method="magnitude", density=0.5, training=SHORT, dense_baseline=False)
    assert "eval/f1" in result.metrics
