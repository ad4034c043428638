"""Training whose zeros no longer change: sparse products, with the result of dense ones but for rounding."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.masks import methods, new_masks, update
from tests.unit.core.test_resume import StopIn, same
from tests.unit.runtime.pruned_models import needs_kernel
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from mvprune.data.loading import ClassificationData
from mvprune.runtime import kernel
from mvprune.runtime.training import FixedZeros, TrainingChoices
from mvprune_core import (
    Callback,
    LockedMask,
    Magnitude,
    Method,
    OneShotMagnitude,
    Platon,
    Result,
    Schedule,
    Stopped,
    Training,
    compress,
)
from mvprune_core.training import sparse_products

QUICK = Training(max_steps=15, batch_size=32, learning_rate=1e-3)
EXACT: dict[str, Any] = {"dense_baseline": False, "weight_dtype": "fp32", "embedding_dtype": "fp32"}
EVENTS = Schedule("events", pruning_start=0.2, cooldown=0.4)
PRODUCTS = "training computed the products of"


class Curve(Callback):
    """The loss of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step(self, progress: Any) -> None:
        self.losses.append(progress.loss)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All matrices of the small models have sparse products; how many rows each backward pass had."""
    monkeypatch.setattr(sparse_products, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(TrainingChoices, "backend", lambda *_: "kernel")
    rows: list[int] = []
    original = FixedZeros.weight_gradient

    def counted(product: Any, grad: Tensor, x: Tensor) -> Tensor:
        rows.append(len(grad))
        return original(product, grad, x)

    monkeypatch.setattr(FixedZeros, "weight_gradient", counted)
    return rows


@pytest.fixture(scope="module")
def artifact(shared_model: Path, data: ClassificationData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a fifth of its weights."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pruned") / "artifact"
    compress(shared_model, data, method=Magnitude(), density=0.2, training=QUICK, **EXACT).save(folder)
    return folder


@pytest.fixture
def dense() -> Callable[..., tuple[Result, list[float]]]:
    """Compresses without sparse products."""

    def run(*args: Any, **options: Any) -> tuple[Result, list[float]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TrainingChoices, "backend", lambda *_: "dense")
            curve = Curve()
            return compress(*args, callback=curve, **EXACT, **options), curve.losses

    return run


def notes(result: Result) -> list[str]:
    return [note for note in result.info.notes if note.startswith(PRODUCTS)]


def equal_but_for_rounding(one: Result, two: Result) -> None:
    states = one.model.state_dict(), two.model.state_dict()
    for name, value in states[0].items():
        if name.endswith(
            ("key.bias", "c_attn.bias")
        ):  # the loss does not depend on keys' biases: AdamW scales rounding
            continue
        torch.testing.assert_close(value, states[1][name], rtol=1e-3, atol=1e-4)
    for name in one.pruned:
        assert torch.equal(states[0][name] == 0, states[1][name] == 0)


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize(
    ("training", "rewind"),
    [
        (QUICK, 0.0),
        (QUICK, 0.4),
        (Training(max_steps=15, batch_size=32, learning_rate=1e-3, accumulation_steps=2), 0.0),
        (Training(max_steps=15, batch_size=32, learning_rate=1e-3, gradient_checkpointing=True), 0.0),
        (Training(max_steps=15, batch_size=32, learning_rate=1e-3, evaluate_every=5), 0.0),
    ],
    ids=["usual", "rewind", "accumulation", "gradient checkpointing", "evaluations"],
)
def test_a_locked_mask_trains_as_with_dense_products(
    artifact: Path,
    model_folder: Path,
    data: ClassificationData,
    calls: list[int],
    dense: Callable[..., tuple[Result, list[float]]],
    training: Training,
    rewind: float,
) -> None:
    options: dict[str, Any] = {"training": training, "mask_from": artifact, "method": LockedMask(rewind=rewind)}
    if rewind:
        options["method"] = LockedMask(initial_weights="model", rewind=rewind)
    whole, losses = dense(model_folder, data, **options)
    assert calls == []
    assert notes(whole) == [f"{PRODUCTS} all 12 pruned matrices densely, which was measured to be faster"]
    curve = Curve()
    found = compress(model_folder, data, callback=curve, **EXACT, **options)
    assert len(calls) == 12 * round(15 * (1 - rewind)) * training.accumulation_steps
    np.testing.assert_allclose(curve.losses, losses, rtol=1e-4, atol=1e-6)
    equal_but_for_rounding(found, whole)
    assert notes(found) == [
        f"{PRODUCTS} 12 of 12 pruned matrices from their non-zeros, which was measured to be faster"
    ]
    assert not any("forward" in vars(module) for module in found.model.modules())


@needs_kernel
@pytest.mark.parametrize(
    ("method", "steps"),
    first_fast(
        [
            (Magnitude(schedule=EVENTS), 6),
            (OneShotMagnitude("before"), 15),
            (Magnitude(), 0),
        ]
    ),
    ids=["events", "one shot", "cubic"],
)
def test_the_cool_down_of_other_methods_has_them_too(
    model_folder: Path,
    data: ClassificationData,
    calls: list[int],
    dense: Callable[..., tuple[Result, list[float]]],
    method: Method,
    steps: int,
) -> None:
    """Where the mask is final then. That of magnitude on its usual schedule is not: it follows the weights."""
    options: dict[str, Any] = {"training": QUICK, "density": 0.2, "method": method}
    whole, _ = dense(model_folder, data, **options)
    found = compress(model_folder, data, **EXACT, **options)
    assert len(calls) == 12 * steps
    equal_but_for_rounding(found, whole)


@pytest.mark.slow
@needs_kernel
def test_stops_change_nothing_even_where_the_choice_would_be_another(
    artifact: Path, model_folder: Path, data: ClassificationData, calls: list[int], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    options: dict[str, Any] = {"training": QUICK, "mask_from": artifact, **EXACT}
    some = iter(["kernel", "dense"] * 6)
    monkeypatch.setattr(TrainingChoices, "backend", lambda *_: next(some))
    whole = compress(model_folder, data, **options)
    folder = tmp_path / "checkpoint"
    some = iter(["kernel", "dense"] * 6)
    with pytest.raises(Stopped):
        compress(model_folder, data, checkpoint=folder, callback=StopIn("pruning", 5), **options)
    monkeypatch.setattr(TrainingChoices, "backend", lambda *_: pytest.fail("it is chosen once"))
    resumed = compress(model_folder, data, checkpoint=folder, **options)
    assert same(whole, resumed)
    assert notes(whole) == notes(resumed) == [
        f"{PRODUCTS} 6 of 12 pruned matrices from their non-zeros, which was measured to be faster"
    ]  # fmt: skip


@pytest.mark.slow
@needs_kernel
def test_stopped_before_the_mask_applies_it_is_chosen_later(
    artifact: Path, model_folder: Path, data: ClassificationData, calls: list[int], tmp_path: Path
) -> None:
    method = LockedMask(initial_weights="model", rewind=0.5)
    options: dict[str, Any] = {"training": QUICK, "mask_from": artifact, "method": method, **EXACT}
    whole = compress(model_folder, data, **options)
    folder = tmp_path / "checkpoint"
    for step in (5, 11):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=folder, callback=StopIn("pruning", step), **options)
    assert same(whole, compress(model_folder, data, checkpoint=folder, **options))


@pytest.mark.slow
def test_without_the_kernel_products_are_dense_and_it_is_said(
    artifact: Path, model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(sparse_products, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(kernel, "load", lambda: "no native kernel: it was not built")
    with caplog.at_level(logging.INFO):
        result = compress(model_folder, data, mask_from=artifact, training=QUICK, **EXACT)
    said = f"{PRODUCTS} all 12 pruned matrices densely: no native kernel: it was not built"
    assert notes(result) == [said]
    assert any(said in record.message for record in caplog.records)


@pytest.mark.slow
@needs_kernel
def test_small_matrices_bf16_and_deterministic_runs_have_dense_products(
    artifact: Path, model_folder: Path, data: ClassificationData, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    short: dict[str, Any] = {"max_steps": 3, "batch_size": 32}
    for changes in ({"precision": "bf16"}, {"deterministic": True}, {}):
        training = Training(**short, **changes)
        if not changes:
            monkeypatch.setattr(sparse_products, "LEAST_WEIGHTS", 1 << 16)
        assert notes(compress(model_folder, data, mask_from=artifact, training=training, **EXACT)) == []
    assert calls == []


@pytest.mark.slow
@needs_kernel
def test_the_choice_is_made_once_in_a_run(
    artifact: Path, model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no matrix is large enough."""
    made: list[float] = []

    class Counted(TrainingChoices):
        def __init__(self, rows: int, threads: int) -> None:
            made.append(rows)
            super().__init__(rows, threads)

    monkeypatch.setattr(sparse_products, "TrainingChoices", Counted)
    training = Training(max_steps=5, batch_size=32)
    assert notes(compress(model_folder, data, mask_from=artifact, training=training, **EXACT)) == []
    assert len(made) == 1


@needs_kernel
def test_conv1d_too(
    save: Callable[..., Path], data: ClassificationData, calls: list[int],
    dense: Callable[..., tuple[Result, list[float]]],
) -> None:  # fmt: skip
    torch.manual_seed(1)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 40, "pad_token_id": 0}
    model = save(GPT2Model(GPT2Config(**sizes, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)), "gpt2")
    options: dict[str, Any] = {"training": QUICK, "density": 0.2, "method": OneShotMagnitude("before")}
    whole, _ = dense(model, data, **options)
    found = compress(model, data, **EXACT, **options)
    assert len(calls) == 8 * 15
    equal_but_for_rounding(found, whole)


@pytest.mark.parametrize("method", [*methods(), Magnitude(schedule=EVENTS), Platon(schedule=EVENTS)], ids=repr)
def test_masks_that_are_called_final_do_not_change(method: Method) -> None:
    """And gradients of masked weights change nothing."""
    total, found = 40, []
    for factor in (1.0, 0.0):
        torch.manual_seed(0)
        model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(12, 20), nn.Linear(20, 12)])})
        masks = new_masks(model, method, density=0.3, total_steps=total, seed=0)
        final: list[Tensor] = []
        source = torch.Generator().manual_seed(1)
        for step in range(1, total + 1):
            kept = [matrix.kept for matrix in masks.matrices]
            if masks.final:
                final = final or kept
                assert all(torch.equal(one, two) for one, two in zip(kept, final, strict=True))
            for matrix, one in zip(masks.matrices, kept, strict=True):
                grad = torch.randn(matrix.weight.shape, generator=source)
                matrix.weight.grad = torch.where(one, grad, grad * (factor if final else 1.0))
            masks.backward()
            for matrix in masks.matrices:
                if matrix.weight.grad is not None:
                    matrix.weight.data -= 0.3 * matrix.weight.grad
                if matrix.scores is not None:
                    matrix.scores.data -= 0.3 * matrix.scores.grad
            update(masks, step)
        found.append([matrix.masked.clone() for matrix in masks.matrices])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
