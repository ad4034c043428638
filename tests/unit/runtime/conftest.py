"""What the runtime's tests share: a cache of their own, and an artifact."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import SIZES, prune

from mvprune.artifact import (
    Accounting,
    Base,
    Coding,
    DatasetSource,
    LayerCount,
    ModelSource,
    ResultInfo,
    round_values,
    save_model,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mvprune"


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """What a test draws is the same each time: tolerances hold for these."""
    torch.manual_seed(0)


class _NoTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("[PAD]\n")


def _save(folder: Path, base: Path | None = None) -> Path:
    """Writes an artifact with a pruned BERT. With `base`, a folder for the model before its zeros: a delta."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).eval()
    names = prune(model)
    if base is not None:
        before = copy.deepcopy(model)
        with torch.no_grad():
            for name in names:
                weight = before.get_parameter(name)
                weight.copy_(torch.where(weight != 0, weight, torch.randn_like(weight)))
        before.save_pretrained(base)
    opened = None if base is None else Base(base)
    return save(folder, model, names, opened)


def save(
    folder: Path,
    model: transformers.PreTrainedModel,
    names: list[str],
    base: Base | None = None,
    coding: Coding = Coding(),  # noqa: B008 (immutable)
) -> Path:
    """Writes an artifact of a pruned model."""
    round_values(model, names, coding, base=base)
    layers = []
    for name in names:
        weight = model.get_parameter(name)
        count = int(torch.count_nonzero(weight))
        layers.append(LayerCount(name, tuple(weight.shape), count / weight.numel(), count))
    kept = sum(layer.nonzero for layer in layers)
    digest = hashlib.sha256(b"").hexdigest()
    result = ResultInfo(
        spec={"task": "sst2"},
        model=ModelSource("tiny", "", digest),
        dataset=DatasetSource("sst2", digest, 1, 1),
        metrics={"eval/accuracy": 0.5},
        primary_metric="accuracy",
        accounting=Accounting(0.1, 0.1, 10**6, kept, 10**6, kept, 10**6, kept, 4 * 10**6),
        layers=tuple(layers),
        versions={},
        seed=0,
    )
    save_model(folder, model, _NoTokenizer(), pruned=names, result=result, coding=coding, base=base)
    return folder


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with a pruned BERT."""
    return _save(tmp_path_factory.mktemp("runtime") / "artifact")


@pytest.fixture
def delta(tmp_path: Path) -> tuple[Path, Path]:
    """A delta artifact of bit masks, and its base."""
    return _save(tmp_path / "delta", tmp_path / "base"), tmp_path / "base"
