"""Artifacts in the sparse runtime: loading, measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.runtime.pruned_models import inputs

import mvprune
from mvprune.artifact import WEIGHTS_FILE, Base
from mvprune.artifact.header import open_header
from mvprune.runtime import _choice, backends, kernel, measure, model_bytes


@pytest.fixture
def sparse_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice does not hang on the machine: matrices this small are a matter of luck."""

    def fastest(rivals: Any, seconds: float) -> dict[str, float]:
        return {name: {"kernel": 1.0, "csr": 2.0, "dense": 3.0}[name] for name in rivals}

    monkeypatch.setattr(_choice, "fastest", fastest)


@pytest.mark.usefixtures("sparse_wins")
def test_a_sparse_model_is_loaded(artifact: Path) -> None:
    dense, sparse = mvprune.load(artifact), mvprune.load(artifact, runtime="sparse")
    found = backends(sparse)
    assert found == {"csr" if kernel.load() else "kernel": 12, "dense": 2}
    assert type(sparse) is type(dense)
    with torch.inference_mode():
        wanted = dense(**inputs()).logits
        torch.testing.assert_close(sparse(**inputs()).logits, wanted, rtol=1e-5, atol=1e-5)
    assert model_bytes(sparse) < 0.6 * model_bytes(dense)


@pytest.mark.usefixtures("sparse_wins")
def test_no_dense_weight_is_written_for_a_sparse_layer(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their memory is never touched, so that the system never provides it."""
    filled, copy = [], torch.Tensor.copy_

    def record(tensor: torch.Tensor, *arguments: Any) -> torch.Tensor:
        if tensor.device.type == "cpu":
            filled.append(tensor.shape)
        return copy(tensor, *arguments)

    monkeypatch.setattr(torch.Tensor, "copy_", record)
    mvprune.load(artifact, runtime="sparse")
    assert (60, 48) in filled  # the embeddings
    assert not {(100, 48), (48, 100)} & set(filled)


@pytest.mark.usefixtures("sparse_wins")
def test_sparse_models_of_one_base(delta: tuple[Path, Path]) -> None:
    """They share embeddings and biases, which the sparse layers use."""
    folder, path = delta
    assert {tensor.dtype for tensor in open_header(folder / WEIGHTS_FILE).packed.values()} == {"BASE"}
    base, dense = Base(path), mvprune.load(folder, path)
    models = [mvprune.load(folder, base, runtime="sparse") for _ in range(2)]
    for sparse in models:
        assert backends(sparse)["dense"] == 2
        with torch.inference_mode():
            torch.testing.assert_close(sparse(**inputs()).logits, dense(**inputs()).logits, rtol=1e-5, atol=1e-5)
    first, second = (model.bert.embeddings.word_embeddings.weight for model in models)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_an_unknown_runtime_is_refused(artifact: Path) -> None:
    with pytest.raises(ValueError, match="runtime must be dense or sparse, got 'fast'"):
        mvprune.load(artifact, runtime="fast")


def test_measured_against_dense(artifact: Path) -> None:
    before = torch.get_num_threads()
    found = measure(artifact, batch=2, tokens=20, threads=1, seconds=0.0)
    assert torch.get_num_threads() == before
    assert (found.batch, found.tokens, found.threads) == (2, 20, 1)
    assert found.ratio == found.dense_seconds / found.sparse_seconds > 0
    assert sum(found.layers.values()) == 14
    assert found.isa == kernel.isa()
    assert found.sparse_bytes <= found.dense_bytes


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"tokens": -1}, "tokens must be at least 1, got -1"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"tokens": 61}, "tokens must be at most 60, the model's positions, got 61"),
    ],
)
def test_numbers_that_make_no_sense(artifact: Path, wrong: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        measure(artifact, seconds=0.0, **wrong)
