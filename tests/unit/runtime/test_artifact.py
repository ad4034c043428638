"""Artifacts in the sparse runtime: loading, measuring."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.unit.runtime.conftest import save
from tests.unit.runtime.pruned_models import SIZES, inputs, prune

import mvprune
from mvprune.artifact import WEIGHTS_FILE, Base, Coding, Values, values
from mvprune.artifact.header import PackedTensor, open_header
from mvprune.artifact.packing import Unpacked, pack_tensor, unpack_parts
from mvprune.runtime import _choice, backends, kernel, measure, model_bytes
from mvprune.runtime._embedding import StoredEmbedding


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
def test_no_dense_matrix_is_made_for_what_stays_compressed(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, array = [], Unpacked.array

    def record(tensor: Unpacked) -> Any:
        made.append(tensor.shape)
        return array(tensor)

    monkeypatch.setattr(Unpacked, "array", record)
    model = mvprune.load(artifact, runtime="sparse")
    assert {shape for shape in made if len(shape) == 2} == {(48, 48), (2, 48)}  # the pooler and the head
    assert {tuple(parameter.shape) for parameter in model.parameters() if parameter.dim() == 2} == {(48, 48), (2, 48)}
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))


@pytest.mark.usefixtures("sparse_wins")
def test_embeddings_stay_as_stored(artifact: Path) -> None:
    dense, sparse = (mvprune.load(artifact, runtime=runtime).bert.embeddings for runtime in ("dense", "sparse"))
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        stored, wanted = sparse.get_submodule(name), dense.get_submodule(name)
        assert stored.numbers.dtype == np.float16
        assert torch.equal(stored.weight, wanted.weight)
    ids = torch.tensor([[3, 59, 0], [7, 7, 7]])
    assert torch.equal(sparse(ids), dense(ids))
    assert torch.equal(copy.deepcopy(sparse)(ids), dense(ids))
    for wrong in (-1, 60):
        with pytest.raises(IndexError, match="an index of an embedding must be that of one of its rows"):
            sparse(torch.tensor([[3, wrong]]))


@pytest.mark.usefixtures("sparse_wins")
def test_int4_embeddings_stay_int4(tmp_path: Path) -> None:
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).eval()
    folder = save(tmp_path / "int4", model, prune(model), coding=Coding(embeddings=Values.INT4))
    dense, sparse = mvprune.load(folder), mvprune.load(folder, runtime="sparse")
    stored = sparse.bert.embeddings.word_embeddings
    assert (stored.numbers.shape, stored.numbers.dtype) == ((60, 32), np.uint8)  # 48 columns, filled up to 64
    assert torch.equal(copy.deepcopy(stored).weight, dense.bert.embeddings.word_embeddings.weight)
    with torch.inference_mode():
        torch.testing.assert_close(sparse(**inputs()).logits, dense(**inputs()).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [(), (0, 5, 6)])  # where rows of zeros are not stored
@pytest.mark.parametrize("kind", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("columns", [10, 70])
def test_an_embedding_is_exact(columns: int, kind: str, rows: tuple[int, ...]) -> None:
    source = np.random.default_rng(0)
    matrix = source.standard_normal((24, columns), np.float32) * np.geomspace(0.01, 10, 24, dtype=np.float32)[:, None]
    matrix[list(rows)] = 0
    rounded = values.rounded(matrix, Values(kind))
    parts = pack_tensor(rounded, Values(kind), pruned=False)
    description, count = parts.description, parts.description["count"]
    entries = dict.fromkeys(("positions", "values", "scales"))
    tensor = PackedTensor(description["layout"], matrix.shape, description["values"], count, count, **entries)
    stored = {name: content for name, (_, content) in parts.entries.items()}
    for name, (count, numbers) in {"values": (tensor.count, Values(kind)), "scales": (0, Values.BF16)}.items():
        if parts.entries.get(name, ("",))[0] == "U8":
            stored[name] = values.unpack(stored[name], count or tensor.scale_count, numbers)
    embedding = StoredEmbedding(*unpack_parts(tensor, stored).rows())
    ids = torch.from_numpy(source.integers(0, 24, (3, 50)))
    assert torch.equal(embedding(ids), torch.from_numpy(rounded)[ids])
    assert torch.equal(embedding._converted(ids.view(-1).numpy()), torch.from_numpy(rounded)[ids.view(-1)])
    sizes = {"fp16": 2 * columns, "int8": columns + 4, "int4": {10: 16 + 4, 70: 48 + 2 * 4}[columns]}
    assert embedding.nbytes == 24 * sizes[kind]


@pytest.mark.usefixtures("sparse_wins")
def test_an_embedding_that_a_head_uses_stays_dense(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)).eval()
    folder = save(tmp_path / "masked", model, prune(model))
    dense, sparse = mvprune.load(folder), mvprune.load(folder, runtime="sparse")
    assert type(sparse.bert.embeddings.word_embeddings) is torch.nn.Embedding
    assert sparse.cls.predictions.decoder.weight is sparse.bert.embeddings.word_embeddings.weight
    with torch.inference_mode():
        found, wanted = (one(**inputs()).logits[inputs()["attention_mask"].bool()] for one in (sparse, dense))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


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


@pytest.mark.slow
def test_measured_against_dense(artifact: Path) -> None:
    before = torch.get_num_threads()
    found = measure(artifact, batch=2, tokens=20, threads=1, seconds=0.0)
    assert torch.get_num_threads() == before
    assert (found.batch, found.tokens, found.threads) == (2, 20, 1)
    assert found.ratio == found.dense_seconds / found.sparse_seconds > 0
    assert sum(found.layers.values()) == 14
    assert found.isa == kernel.isa()
    assert found.sparse_bytes <= found.dense_bytes
    assert 0 <= found.difference < 1e-5
    assert (found.activations, found.activations_reason) == ("fp32", "")


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
