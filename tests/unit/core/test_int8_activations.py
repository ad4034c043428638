"""Runs with int8 activations: trained and evaluated as the sparse runtime computes, and recorded."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.test_resume import StopIn, same
from tests.unit.runtime.pruned_models import needs_int8
from torch import Tensor, nn
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, GPT2Config, GPT2Model
from transformers.pytorch_utils import Conv1D

import mvprune
from mvprune.artifact import read_manifest
from mvprune.cli import main
from mvprune.data.loading import ClassificationData
from mvprune.runtime import backends, optimize
from mvprune.runtime.rounding import int8_simulated, round_inputs, round_weight
from mvprune.runtime.training import TrainingChoices
from mvprune_core import (
    OBERT,
    CompressionError,
    LockedMask,
    Magnitude,
    Reason,
    Result,
    Schedule,
    SharedBaseline,
    Stopped,
    Training,
    compress,
)
from mvprune_core.base.callbacks import Callback, Progress
from mvprune_core.evaluation import evaluate
from mvprune_core.runs import plan
from mvprune_core.training import sparse_products
from mvprune_core.training.rounded_layers import RoundedLayers

STEPS = 20
QUICK = Training(max_steps=STEPS, batch_size=32, learning_rate=5e-3)
OPTIONS: dict[str, Any] = {"method": "magnitude", "training": QUICK, "dense_baseline": False, "activations": "int8"}
EVENTS = Schedule("events", pruning_start=0.2, cooldown=0.4, events=3)

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")

_USUAL = {"vocab_size": 40, "initializer_range": 0.2, "pad_token_id": 0}
OTHERS: dict[str, Callable[[], Any]] = {
    "distilbert": lambda: DistilBertModel(DistilBertConfig(**_USUAL, dim=32, n_layers=2, n_heads=4, hidden_dim=48)),
    "gpt2": lambda: GPT2Model(GPT2Config(**_USUAL, n_embd=32, n_layer=2, n_head=2, n_positions=64)),
}


class Losses(Callback):
    """The loss after each step."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_step(self, progress: Progress) -> None:
        self.found.append(progress.loss)


def rounded(layer: Any) -> tuple[Tensor, Tensor]:
    """What a layer computes, and its weight as it computes with it, (outputs, inputs)."""
    weight = layer.weight.detach()
    return round_weight(weight.t() if isinstance(layer, Conv1D) else weight).values(), layer.bias


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.Linear(700, 6), Conv1D(6, 700), nn.Linear(8, 6, bias=False)], ids=repr)
def test_a_layer_and_its_gradients(layer: Any, precision: torch.dtype) -> None:
    """Straight-through: the product of rounded factors, with the gradients of a product of these."""
    model = nn.ModuleDict({"layer": nn.ModuleList([copy.deepcopy(layer)]), "head": nn.Linear(2, 2)})
    layers, one = RoundedLayers(model), model["layer"][0]  # type: ignore[index]
    columns = one.weight.shape[0] if isinstance(one, Conv1D) else one.weight.shape[1]
    x, grad = torch.randn(3, 5, columns, requires_grad=True), torch.randn(3, 5, 6)
    plain = one(x).detach()
    weight, inputs = rounded(one)[0], round_inputs(x.detach()).values()
    layers.begin()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision != torch.float32):
        y = one(x)
    y.backward(grad.to(y.dtype))
    assert y.dtype == precision
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5} if precision == torch.float32 else {"rtol": 0.05, "atol": 0.5}
    bias = 0 if one.bias is None else one.bias
    torch.testing.assert_close(y.float(), inputs @ weight.t() + bias, **close)
    torch.testing.assert_close(x.grad, grad @ weight, **close)
    of_weight = one.weight.grad.t() if isinstance(one, Conv1D) else one.weight.grad
    torch.testing.assert_close(of_weight, torch.einsum("bto,bti->oi", grad, inputs), **close)
    if one.bias is not None:
        torch.testing.assert_close(one.bias.grad, grad.sum((0, 1)), **close)
    layers.end()
    assert torch.equal(one(x), plain)
    assert "forward" not in vars(model["head"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "first"),
    [
        (OBERT(gradients=4), 12),
        (Magnitude(schedule=EVENTS), 12),
        (Magnitude(schedule=Schedule("one_shot", pruning_start=0.5)), 10),
        ("l0", 12),
        ("rigl", 0),
    ],
)
def test_rounding_starts_at_the_final_density(
    model_folder: Path, data: ClassificationData, method: Any, first: int
) -> None:
    """Up to there all is as without it."""
    losses = []
    for activations in ("fp32", "int8"):
        callback = Losses()
        options = OPTIONS | {"method": method, "activations": activations, "callback": callback}
        compress(model_folder, data, density=0.25, **options)
        losses.append(callback.found)
    one, two = losses
    assert one[:first] == two[:first]
    assert all(a != b for a, b in zip(one[first:], two[first:], strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulation_steps": 2},
        pytest.param({"gradient_checkpointing": True}, marks=pytest.mark.slow),
        pytest.param({"compile": True}, marks=[pytest.mark.slow, needs_compiler]),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method")
def test_other_ways_to_compute_a_step_learn_the_same(
    save: Callable[..., Path],
    bert_config: Callable[..., BertConfig],
    data: ClassificationData,
    changes: dict[str, bool | int],
) -> None:
    torch.manual_seed(1)
    model_folder = save(BertModel(bert_config(num_hidden_layers=1)))  # each layer is compiled by itself
    losses = []
    for training in (QUICK, replace(QUICK, **changes)):  # type: ignore[arg-type]
        callback = Losses()
        compress(model_folder, data, density=0.25, callback=callback, **OPTIONS | {"training": training})
        losses.append(callback.found)
    assert losses[1][:12] == pytest.approx(losses[0][:12], rel=1e-5)
    # From where the inputs are rounded, sums in another order move a few numbers to their neighbours.
    assert losses[1] == pytest.approx(losses[0], rel=3e-3)


def artifact_of(result: Result, folder: Path) -> Path:
    result.save(folder)
    return folder


def answers(model: Any) -> Tensor:
    """The logits of a batch with padding."""
    ids = torch.randint(4, 30, (16, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[::2, 12:] = 0
    with torch.inference_mode():
        found: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return found


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@needs_int8
@pytest.mark.parametrize(
    ("family", "pattern", "density"),
    first_fast(
        [
            ("bert", "1x4", 0.2),
            ("bert", None, 0.2),
            ("bert", None, 1.0),
            ("distilbert", "1x4", 0.2),
            ("gpt2", "1x4", 0.2),
            ("gpt2", None, 1.0),
        ]
    ),
)
def test_the_runtime_computes_what_was_evaluated(
    model_folder: Path,
    save: Callable[..., Path],
    data: ClassificationData,
    tmp_path: Path,
    family: str,
    pattern: str | None,
    density: float,
) -> None:
    """Up to rounding errors of fp32, except for examples in which these make a number the next integer. Measured: at
    most 2e-6 of the largest logit for most of the examples, 1 % for all."""
    torch.manual_seed(1)
    folder = save(OTHERS[family]()) if family in OTHERS else model_folder
    result = compress(folder, data, density=density, pattern=pattern, **OPTIONS)
    artifact = artifact_of(result, tmp_path / "artifact")
    dense, exact = mvprune.load(artifact), answers(mvprune.load(artifact))
    with int8_simulated(dense):
        simulated = answers(dense)
    assert torch.equal(answers(dense), exact)
    real = optimize(mvprune.load(artifact), activations="int8", backend="kernel")
    assert backends(real)["int8"] == len(result.pruned)
    difference = (answers(real) - simulated).abs().amax(1) / simulated.abs().max()
    assert off(exact, simulated) > 1e-3
    assert float(difference.median()) < 1e-4
    assert float(difference.max()) < 0.05


@pytest.mark.parametrize(("density", "evaluate_every"), first_fast([(0.2, None), (0.2, 10), (1.0, None)]))
def test_an_evaluation_gives_the_metrics_of_the_run(
    model_folder: Path, data: ClassificationData, tmp_path: Path, density: float, evaluate_every: int | None
) -> None:
    """Not those of fp32. The dense model and the file have nothing of it."""
    training = replace(QUICK, evaluate_every=evaluate_every)
    exact = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
    result = compress(model_folder, data, density=density, **OPTIONS | exact | {"training": training})
    artifact, file = artifact_of(result, tmp_path / "artifact"), tmp_path / "dev.tsv"
    rows = zip(data.validation.texts, data.validation.labels, strict=True)
    file.write_text("\n".join(["sentence\tlabel", *(f"{text}\t{label}" for text, label in rows)]))
    found = evaluate(artifact, file)
    assert {f"eval/{name}": value for name, value in found.metrics.items()}.items() <= result.metrics.items()
    assert (found.runtime, found.activations, found.metrics) == ("dense", "int8", found.recorded)
    assert found.notes[-1] == "activations are int8, simulated on the dense model, as the artifact says"
    other = evaluate(artifact, file, activations="fp32")
    assert other.activations == "fp32"
    assert other.notes[-1] == "activations are fp32; the metrics in the manifest are of int8"
    with pytest.raises(ValueError, match="activations must be fp32 or int8, got 'int4'"):
        evaluate(artifact, file, activations="int4")  # type: ignore[arg-type]
    assert "forward" not in {name for module in result.model.modules() for name in vars(module)}


@pytest.mark.slow
def test_a_resumed_run_is_the_same(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    """Stopped before and after rounding began, and by the other activations' checkpoint."""
    options = OPTIONS | {"density": 0.25, "training": replace(QUICK, evaluate_every=6, keep_best=True)}
    options["method"] = "soft_movement"
    whole, folder = compress(model_folder, data, **options), tmp_path / "checkpoint"
    for step in (7, 12, 15):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=folder, callback=StopIn("pruning", step), **options)
    assert same(compress(model_folder, data, checkpoint=folder, **options), whole)
    fp32 = compress(model_folder, data, **options | {"activations": None})
    assert not same(fp32, whole)
    with pytest.warns(RuntimeWarning, match="is of another run"):
        assert same(compress(model_folder, data, checkpoint=folder, **options | {"activations": None}), fp32)


@pytest.mark.slow
def test_the_record(
    model_folder: Path, data: ClassificationData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = compress(model_folder, data, density=0.25, **OPTIONS)
    artifact = artifact_of(result, tmp_path / "artifact")
    assert result.info.spec["activations"] == "int8"
    assert read_manifest(artifact).activations == "int8"
    words = "the metrics are of rounded inputs and weights, as the sparse runtime computes"
    assert f"| activations | int8: {words} |" in (artifact / "README.md").read_text()
    assert words in (artifact / "report.html").read_text()
    assert main(["inspect", str(artifact)]) == 0
    assert words in capsys.readouterr().out
    plain = compress(model_folder, data, density=0.25, **OPTIONS | {"activations": "fp32"})
    assert plain.info.activations == "fp32"
    assert "activations" not in (artifact_of(plain, tmp_path / "plain") / "README.md").read_text()


@pytest.mark.slow
def test_no_sparse_products_replace_rounded_ones(
    model_folder: Path, data: ClassificationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = artifact_of(compress(model_folder, data, density=0.25, **OPTIONS), tmp_path / "artifact")
    monkeypatch.setattr(sparse_products, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(TrainingChoices, "backend", lambda *_: "kernel")
    result = compress(model_folder, data, mask_from=artifact, **OPTIONS | {"method": LockedMask()})
    assert not [note for note in result.notes if "products" in note]


class Other(nn.Linear):
    """A linear layer that the runtime does not know."""


def test_what_cannot_be_rounded_is_refused(
    model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = plan.rounded_layers
    monkeypatch.setattr(
        plan, "rounded_layers", lambda model: load(nn.ModuleDict({"layer": nn.ModuleList([Other(2, 2)])}))
    )
    with pytest.raises(CompressionError, match="activations must be fp32 for a model without a layer") as raised:
        compress(model_folder, data, density=0.2, **OPTIONS)
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE
    with pytest.raises(ValueError, match="activations must be one of fp32, int8, got 'int4'"):
        compress(model_folder, data, density=0.2, **OPTIONS | {"activations": "int4"})


@pytest.mark.slow
def test_a_rounded_dense_model_is_no_baseline(model_folder: Path, data: ClassificationData) -> None:
    dense = compress(model_folder, data, density=1.0, **OPTIONS)
    baseline = SharedBaseline("projects/p/jobs/dense", dense.info, required=True)
    options = OPTIONS | {"dense_baseline": baseline, "teacher": None}
    with pytest.raises(CompressionError, match="which has metrics of int8 activations"):
        compress(model_folder, data, density=0.2, **options)
