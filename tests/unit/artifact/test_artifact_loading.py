"""How a model is built before its values are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from mvprune.artifact import ResultInfo, load, round_values, save_model

from .conftest import NoTokenizer


def _dirty(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        found = make(*args, **kwargs)
        return found.fill_(1e9) if found.is_floating_point() else found

    return made


@pytest.mark.timeout(60)
def test_what_lies_in_memory_does_not_matter(
    tmp_path: Path, result: ResultInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ModernBERT draws from a normal distribution until all is within its bounds."""
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    config = transformers.ModernBertConfig(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, **special
    )
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    round_values(model)
    info = dataclasses.replace(
        result, accounting=dataclasses.replace(result.accounting, prunable_weights=0, kept_weights=0)
    )
    save_model(tmp_path / "out", model, NoTokenizer(), pruned=[], result=info)
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, _dirty(getattr(torch, name)))
    loaded = load(tmp_path / "out")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
