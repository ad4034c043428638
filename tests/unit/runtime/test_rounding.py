"""The rounding of int8 activations in torch: that of the kernel, number by number."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import ARCHITECTURES, SIZES, for_int8, needs_int8, needs_kernel, pruned
from tests.unit.runtime.test_int8_models import choose
from tests.unit.runtime.test_models import logits, off
from torch import Tensor, nn
from torch.nn.functional import linear

import mvprune
from mvprune.artifact.values import Values, rounded
from mvprune.runtime import Fp32ActivationsWarning, _choice, backends, measure, optimize
from mvprune.runtime._elements import Elements
from mvprune.runtime._linear import Int8Linear
from mvprune.runtime.attention16 import attention16_simulated
from mvprune.runtime.quads import rounded_weight
from mvprune.runtime.rounding import int8_simulated, round_inputs, round_weight, rounded_layers

SHAPES = ((48, 100), (33, 1030), (7, 4), (1, 1))
DENSITIES = (0.02, 0.1, 0.3, 0.6, 1.0)  # some in quads with a scale for all rows, others with one for each


def weight_of(shape: tuple[int, int], density: float) -> Tensor:
    """Rows of very different sizes, one of them empty."""
    source = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=source) * torch.rand(shape[0], 1, generator=source).pow(6)
    weight *= torch.rand(shape, generator=source) < density
    weight[shape[0] // 2] *= shape[0] == 1
    return weight


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_those_that_the_kernel_has(shape: tuple[int, int], density: float) -> None:
    weight = weight_of(shape, density)
    wanted = rounded_weight(Elements.of(weight.numpy()))
    assert torch.equal(round_weight(weight).values(), torch.from_numpy(wanted))


def test_a_weight_that_is_stored_so_is_not_rounded() -> None:
    """By the kernel; of a full matrix it finds the numbers that were stored."""
    for sparse, density in ((True, 0.1), (False, 1.0)):
        weight = rounded(weight_of((48, 100), density).numpy(), Values.INT8, sparse=sparse)
        assert (rounded_weight(Elements.of(weight)) == weight).all()


@needs_kernel
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_computes_what_the_kernel_does(shape: tuple[int, int], density: float) -> None:
    weight, bias = weight_of(shape, density), torch.randn(shape[0])
    layer = Int8Linear(Elements.of(weight.numpy()), bias)
    x = torch.randn(3, 5, shape[1]) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    x[0, 1], x[1, 2] = 0, 1e-31
    wanted = layer(x)
    found = linear(round_inputs(x).values(), round_weight(weight).values(), bias)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_what_is_not_finite_spoils_its_block(wrong: float) -> None:
    x = torch.ones(2, 600)
    x[1, 3] = wrong
    values = round_inputs(x).values()
    assert torch.equal(values[0], x[0])
    assert values[1, :512].isnan().all()
    assert torch.equal(values[1, 512:], x[1, 512:])


def test_which_layers_are_rounded() -> None:
    model = pruned("Bert")
    names = {id(module): name for name, module in model.named_modules()}
    assert all("encoder.layer." in names[id(layer)] for layer in rounded_layers(model))
    assert len(rounded_layers(model)) == 12
    assert len(rounded_layers(pruned("Albert"))) == 6, "shared ones once"
    layers: Any = [nn.Linear(2, 2), nn.Bilinear(2, 2, 2), nn.Embedding(2, 2), nn.Linear(2, 2)]
    layers[2].weight = layers[3].weight  # as that of a head, which the runtime cannot replace
    assert rounded_layers(nn.ModuleDict({"layer": nn.ModuleList(layers)})) == layers[:1]


@needs_int8
@pytest.mark.parametrize("uneven", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_model_computes_what_the_kernel_does(architecture: str, uneven: bool) -> None:
    """But for few examples, in which rounding errors of fp32 make a number the next integer."""
    model = pruned(architecture, uneven=uneven)
    sparse = optimize(copy.deepcopy(model), activations="int8", backend="kernel")
    for shape in ({"batch": 3, "tokens": 17}, {"batch": 9, "tokens": 30}):
        exact = logits(model, **shape)
        with int8_simulated(model):
            simulated = logits(model, **shape)
        difference = (logits(sparse, **shape) - simulated).abs().amax(1) / simulated.abs().max()
        assert off(simulated, exact) > 1e-3
        assert float(difference.median()) < 1e-4
        assert float(difference.max()) < 0.05
        assert torch.equal(logits(model, **shape), exact)


@needs_int8
@pytest.mark.parametrize(
    ("changes", "is_whole"), [({}, True), ({"hidden_act": "silu"}, False), ({"is_decoder": True}, False)]
)
def test_attention_is_in_int16_in_whole_layers(changes: dict[str, Any], is_whole: bool) -> None:
    torch.manual_seed(0)
    model: Any = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES | changes)).eval()
    with attention16_simulated(model):
        assert (model.config._attn_implementation == "sdpa") == (not is_whole)
        found = logits(model)
    assert model.config._attn_implementation == "sdpa"
    assert (0 < off(found, logits(model)) < 1e-3) == is_whole
    model.config._attn_implementation = "eager"  # weights are wanted
    with attention16_simulated(model):
        assert model.config._attn_implementation == "eager"


@needs_kernel
def test_sparse_layers_outside_of_the_blocks_stay_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    def sparse() -> Any:
        model = pruned("Bert")
        model.bert.pooler.dense.weight.data[::2] = 0
        return model

    forced = optimize(sparse(), activations="int8", backend="kernel")
    assert backends(forced) == {"int8": 12, "kernel": 1, "dense": 1}
    choose(monkeypatch, "int8")
    assert backends(optimize(sparse(), activations="int8")) == {"int8": 12, "kernel": 1, "dense": 1}


@needs_kernel
def test_an_artifact_says_how_it_is_run(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = for_int8(artifact, tmp_path / "int8")
    caplog.set_level(logging.INFO, "mvprune")
    choose(monkeypatch, "int8")
    assert backends(mvprune.load(folder, runtime="sparse"))["int8"] == 12
    assert caplog.messages == [f"{folder}: activations are int8, as its manifest says; activations='fp32' is exact"]
    assert "int8" not in backends(mvprune.load(folder, runtime="sparse", activations="fp32"))
    assert len(caplog.messages) == 1
    assert measure(folder, tokens=8, seconds=0.0).activations == "int8"
    assert measure(folder, tokens=8, seconds=0.0, activations="fp32").activations == "fp32"
    assert backends(mvprune.load(folder)) == {"dense": 14}
    assert caplog.messages[-1] == (f"{folder}: its metrics are those of int8 activations, and runtime='dense' has fp32")
    monkeypatch.setattr(_choice.kernel, "multiplies_bytes", lambda: False)
    with pytest.warns(Fp32ActivationsWarning, match=r"activations stay fp32: .* has no products of bytes here"):
        model = mvprune.load(folder, runtime="sparse")
    assert "int8" not in backends(model)
    assert measure(folder, tokens=8, seconds=0.0).activations_reason
