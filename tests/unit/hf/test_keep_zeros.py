"""Training an artifact's model: its zeros stay where that is asked for, and a warning says so elsewhere."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import mvprune
from mvprune.hf import FilledZerosWarning, keep_zeros

IDS = torch.arange(24).reshape(2, 12)
AUTO = transformers.AutoModelForSequenceClassification
Parameters = Iterable[nn.Parameter]
OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "adamw": lambda of: torch.optim.AdamW(of, 1e-2, weight_decay=0.1),
    "momentum": lambda of: torch.optim.SGD(of, 1e-2, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adafactor": lambda of: torch.optim.Adafactor(of, 1e-2),
    # orthogonal updates: a weight changes with the gradients of all others
    "muon": lambda of: torch.optim.Muon([one for one in of if one.dim() == 2], 1e-2, weight_decay=0.1),
}


def pruned(model: Any) -> dict[str, Tensor]:
    """The weights of the encoder that have zeros."""
    named = model.named_parameters()
    return {name: one.detach().clone() for name, one in named if "encoder" in name and not one.all() and one.dim() == 2}


def train(model: Any, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    model.train()
    for _ in range(steps):
        model(IDS, labels=torch.tensor([0, 1])).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def zeros_stay(model: Any, before: dict[str, Tensor]) -> bool:
    after = dict(model.named_parameters())
    assert before
    assert not any(torch.equal(after[name], values) for name, values in before.items()), "they are trained"
    return all(torch.equal(after[name] == 0, values == 0) for name, values in before.items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_zeros_stay(pruned_model: Callable[..., tuple[Any, Path]], tmp_path: Path, name: str) -> None:
    _, folder = pruned_model("BertForSequenceClassification")
    model = mvprune.load(folder, keep_zeros=True)
    before = pruned(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, OPTIMIZERS[name](model.parameters()))
    assert zeros_stay(model, before)
    model.save_pretrained(tmp_path / "plain")
    assert zeros_stay(AUTO.from_pretrained(tmp_path / "plain"), before)


@pytest.mark.parametrize("auto", [AUTO, transformers.AutoModel, transformers.AutoModelForTokenClassification])
def test_from_pretrained_with_or_without_its_head(pruned_model: Callable[..., tuple[Any, Path]], auto: Any) -> None:
    _, folder = pruned_model("BertForSequenceClassification")
    model = auto.from_pretrained(folder)
    before = pruned(model)
    keep_zeros(model)
    keep_zeros(model)  # nothing happens
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model(IDS)[0].square().mean().backward()
    optimizer.step()
    assert zeros_stay(model, before)


def test_a_trainer_keeps_them(pruned_model: Callable[..., tuple[Any, Path]], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    _, folder = pruned_model("BertForSequenceClassification")
    model = AUTO.from_pretrained(folder)
    keep_zeros(model)
    before = pruned(model)
    rows: Any = [{"input_ids": ids, "labels": 0} for ids in IDS]
    options: dict[str, Any] = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=3, gradient_accumulation_steps=2, weight_decay=0.1, learning_rate=1e-2, **options
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    assert zeros_stay(AUTO.from_pretrained(tmp_path / "saved"), before)


@pytest.mark.parametrize("open_model", [mvprune.load, AUTO.from_pretrained], ids=["load", "from_pretrained"])
def test_training_without_it_warns_once(pruned_model: Callable[..., tuple[Any, Path]], open_model: Any) -> None:
    _, folder = pruned_model("BertForSequenceClassification")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = open_model(folder)
        model(IDS)
        with torch.no_grad():
            model.train()(IDS)
        frozen = copy.deepcopy(model)
        frozen.bert.requires_grad_(False)
        train(frozen, torch.optim.AdamW(frozen.parameters(), 1e-2))
    before = pruned(model)
    with pytest.warns(FilledZerosWarning, match=r"call mvprune\.hf\.keep_zeros\(model\) before it, or") as found:
        train(model, torch.optim.AdamW(model.parameters(), 1e-2))
    assert len(found) == 1
    assert not zeros_stay(model, before)


def test_what_cannot_be(pruned_model: Callable[..., tuple[Any, Path]]) -> None:
    model, folder = pruned_model("BertForSequenceClassification")
    with pytest.raises(ValueError, match=r"^model must be loaded from an artifact, .*, got another BertForSeq"):
        keep_zeros(model)
    with pytest.raises(ValueError, match=r"^keep_zeros must be False with runtime='sparse', which is for inference"):
        mvprune.load(folder, runtime="sparse", keep_zeros=True)
