"""Models with int8 activations: near their dense twins, by whatever path the kernel takes."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.runtime.pruned_models import ARCHITECTURES, inputs, needs_int8, needs_kernel, needs_layers, pruned
from tests.unit.runtime.test_models import counted, logits, off

import mvprune
from mvprune.runtime import Fp32ActivationsWarning, Used, _choice, _used, backends, kernel, measure, optimize, used

SHAPES = ({"batch": 3, "tokens": 17}, {"batch": 1, "tokens": 1}, {"batch": 2, "tokens": 50})


def int8(model: Any, **options: Any) -> Any:
    """All its sparse layers on int8 activations, also where that is slow."""
    return optimize(model, activations="int8", backend="kernel", **options)


@needs_kernel
@pytest.mark.parametrize("uneven", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_outputs_are_near(architecture: str, uneven: bool) -> None:
    dense = pruned(architecture, uneven=uneven)
    sparse = int8(copy.deepcopy(dense))
    assert backends(sparse)["int8"] >= 6
    for shape in SHAPES:
        found, wanted = logits(sparse, **shape), logits(dense, **shape)
        assert 0 < off(found, wanted) < 0.2
        assert torch.corrcoef(torch.stack([found.flatten(), wanted.flatten()]))[0, 1] > 0.995 or wanted.numel() < 6


@needs_kernel
def test_dense_layers_of_the_blocks_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the pooler and the head: they have little to compute."""
    dense = pruned("Bert", uneven=False, density=1.0)
    sparse = int8(copy.deepcopy(dense))
    assert backends(sparse) == {"int8": 12, "dense": 2}
    for shape in SHAPES:
        assert 0 < off(logits(sparse, **shape), logits(dense, **shape)) < 0.2
    choose(monkeypatch, "int8")
    assert backends(optimize(copy.deepcopy(dense), activations="int8")) == {"int8": 12, "dense": 2}
    assert backends(optimize(copy.deepcopy(dense))) == {"dense": 14}


@needs_layers
@pytest.mark.parametrize("architecture", ["Bert", "Electra", "DistilBert"])
def test_whole_layers_use_it(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And give what their parts give, up to what another rounding of the inputs changes."""
    sparse = int8(pruned(architecture))
    calls = counted(monkeypatch)
    found = logits(sparse, batch=3, tokens=30)
    assert calls == [(3, 30)] * 2
    sparse.config._attn_implementation = "eager"  # weights are wanted: part by part
    assert off(logits(sparse, batch=3, tokens=30), found) < 0.05
    assert calls == [(3, 30)] * 2


@needs_kernel
def test_threads_batches_and_copies_change_nothing() -> None:
    dense = pruned("Bert")
    one, two = (int8(copy.deepcopy(dense), threads=threads) for threads in (1, 2))
    wanted = logits(one, batch=3, tokens=30)
    assert torch.equal(logits(two, batch=3, tokens=30), wanted)
    assert torch.equal(logits(copy.deepcopy(one), batch=3, tokens=30), wanted)
    assert torch.equal(logits(pickle.loads(pickle.dumps(one)), batch=3, tokens=30), wanted)  # noqa: S301 (our own)
    given = inputs(batch=3, tokens=30)
    with torch.inference_mode():
        first = one(**{name: value[:1] for name, value in given.items()}).logits
    torch.testing.assert_close(first, wanted[:1], rtol=1e-4, atol=1e-4)


@needs_layers
@needs_int8
@pytest.mark.parametrize("tokens", [5, 30])
def test_an_example_does_not_depend_on_the_rest_of_its_batch(tokens: int) -> None:
    """Short ones too, which fp32 layers compute part by part: with torch's attention."""
    model, given = int8(pruned("Bert")), inputs(batch=3, tokens=tokens)
    together = logits(model, batch=3, tokens=tokens)
    for row, kept in enumerate(given["attention_mask"].sum(1)):
        with torch.inference_mode():
            alone = model(**{name: value[row : row + 1, :kept] for name, value in given.items()}).logits
        torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-4)


def choose(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """The choice does not depend on the machine."""

    def fastest(rivals: Any, seconds: float) -> dict[str, float]:
        return {name: 0.0 if name == first else {"kernel": 1.0, "csr": 3.0}.get(name, 4.0) for name in rivals}

    monkeypatch.setattr(_choice, "fastest", fastest)
    monkeypatch.setattr(_choice.kernel, "multiplies_bytes", lambda: True)
    _used._warn.cache_clear()


@pytest.mark.slow
@needs_kernel
def test_an_artifact_is_loaded_and_measured(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "int8")
    usual = mvprune.load(artifact, runtime="sparse")
    sparse = mvprune.load(artifact, runtime="sparse", activations="int8")
    assert backends(usual) == {"kernel": 12, "dense": 2}
    assert backends(sparse) == {"int8": 12, "dense": 2}
    assert used(sparse, activations="int8") == used(sparse) == Used("sparse", "", "int8")
    assert used(usual) == Used("sparse", "")
    assert 0 < off(logits(sparse), logits(mvprune.load(artifact))) < 0.1
    for activations, low, high in (("fp32", 0.0, 1e-5), ("int8", 1e-5, 0.1)):
        found = measure(artifact, tokens=20, seconds=0.0, activations=activations)
        assert (found.activations, found.activations_reason) == (activations, "")
        assert low <= found.difference < high


@needs_kernel
def test_fp32_is_what_it_was(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, beside int8 layers in the same process."""
    choose(monkeypatch, "kernel")
    usual = mvprune.load(artifact, runtime="sparse")
    wanted = logits(usual)
    logits(int8(pruned("Bert")))
    assert torch.equal(logits(usual), wanted)
    with pytest.warns(Fp32ActivationsWarning, match="activations stay fp32: no layer is faster with int8 activations"):
        asked = mvprune.load(artifact, runtime="sparse", activations="int8")
    assert torch.equal(logits(asked), wanted)
    assert (
        used(asked, activations="int8").activations_reason == "no layer is faster with int8 activations on this machine"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mvprune.load(artifact, runtime="sparse", activations="int8")  # it was said once


def test_why_activations_stay_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = optimize(pruned("Bert"), backend="csr")
    monkeypatch.setattr(_used.kernel, "load", lambda: "no native kernel: it was not built")
    assert used(sparse, activations="int8").activations_reason == "no native kernel: it was not built"
    assert used(sparse).activations_reason == ""
    monkeypatch.setattr(_used.kernel, "load", lambda: "")
    monkeypatch.setattr(_used.kernel, "isa", lambda: "avx2")
    monkeypatch.setattr(_used.kernel, "multiplies_bytes", lambda: False)
    assert used(sparse, activations="int8").activations_reason == (
        "the instruction set in use, avx2, has no products of bytes here (VNNI)"
    )


def test_what_is_refused(artifact: Path) -> None:
    with pytest.raises(ValueError, match="activations must be fp32 or int8, got 'int4'"):
        mvprune.load(artifact, runtime="sparse", activations="int4")  # type: ignore[arg-type]
    message = "activations must be fp32 without the native kernel, got 'int8'; pass "
    with pytest.raises(ValueError, match=f"{message}runtime='sparse'"):
        mvprune.load(artifact, activations="int8")
    with pytest.raises(ValueError, match=f"{message}backend='auto' or 'kernel'"):
        optimize(pruned("Bert"), activations="int8", backend="csr")


def test_without_a_kernel_there_are_no_products_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "load", lambda: "no native kernel: it was not built")
    assert not kernel.multiplies_bytes()
