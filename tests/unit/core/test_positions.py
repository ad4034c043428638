"""Trimmed positions: the artifact, its config, its tokenizer, both runtimes and the exports agree."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
import torch
import transformers
from tests.unit.core.training_runs import SHORT
from transformers import PreTrainedTokenizerFast

import mvprune
from mvprune.artifact import read_manifest
from mvprune.data.loading import ClassificationData
from mvprune.export import export
from mvprune.sources.model_types import TRIMMABLE
from mvprune_core import compress
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.models.artifact_loading import open_artifact
from mvprune_core.storing.positions import check_positions, trim_positions

LENGTH = 10
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
NAMES_OF_DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}


@pytest.fixture
def roberta_folder(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    """Its padding has the id 1, so that positions start at 2."""
    config = transformers.RobertaConfig(
        vocab_size=40, **SIZES, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, initializer_range=0.2
    )
    torch.manual_seed(1)
    transformers.RobertaModel(config).save_pretrained(tmp_path / "roberta")
    names = {"pad_token": "[UNK]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **names).save_pretrained(tmp_path / "roberta")
    return tmp_path / "roberta"


@pytest.mark.slow
@pytest.mark.parametrize(("family", "rows"), [("bert", LENGTH), ("roberta", LENGTH + 2)])
def test_all_that_reads_the_artifact_agrees(
    family: str, rows: int, request: pytest.FixtureRequest, data: ClassificationData, tmp_path: Path
) -> None:
    model = request.getfixturevalue("model_folder" if family == "bert" else "roberta_folder")
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.2,
        "training": replace(SHORT, max_length=LENGTH),
        "dense_baseline": False,
    }
    whole = compress(model, data, **options)
    result = compress(model, data, trim_positions=True, **options)
    before = whole.model.base_model.embeddings.position_embeddings.num_embeddings
    assert result.metrics == whole.metrics
    assert result.accounting.dense_bytes == whole.accounting.dense_bytes, "beside the model before it"
    (note,) = [note for note in result.notes if "positions are trimmed" in note]
    assert note.startswith(f"the positions are trimmed to {rows} of {before}: the model takes inputs of at most 10 ")
    table = result.model.base_model.embeddings.position_embeddings
    assert torch.equal(table.weight, whole.model.base_model.embeddings.position_embeddings.weight[:rows])

    folder = tmp_path / "out"
    result.save(folder)
    assert read_manifest(folder).spec["trim_positions"] is True
    assert json.loads((folder / "config.json").read_text())["max_position_embeddings"] == rows
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == LENGTH
    assert open_artifact(folder).max_length == LENGTH

    ids = torch.arange(4, 4 + 2 * LENGTH).reshape(2, LENGTH)
    with torch.inference_mode():
        wanted = whole.model(ids).logits
        for runtime in ("dense", "sparse"):
            loaded = mvprune.load(folder, runtime=runtime)
            torch.testing.assert_close(loaded(ids).logits, wanted, rtol=1e-4, atol=1e-5)
            with pytest.raises(
                ValueError, match="input_ids must have at most 10 tokens, the model's positions, got 11"
            ):
                loaded(torch.ones(1, LENGTH + 1, dtype=torch.int64))
    export(folder, tmp_path / "dense", to="dense")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "dense")
    with torch.inference_mode():
        assert torch.equal(plain(ids).logits, wanted)
    if family == "bert":  # its graph differs from roberta's only in the number of positions
        return
    export(folder, tmp_path / "onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {one.name: torch.ones_like(ids).numpy() for one in session.get_inputs()} | {"input_ids": ids.numpy()}
    feeds = {name: value * (name != "token_type_ids") for name, value in feeds.items()}
    assert torch.allclose(torch.from_numpy(session.run(["logits"], feeds)[0]), wanted, atol=1e-4)


@pytest.mark.parametrize("family", TRIMMABLE)
def test_every_family(family: str) -> None:
    sizes = NAMES_OF_DISTILBERT if family == "distilbert" else SIZES
    make = transformers.CONFIG_MAPPING[family]
    model: Any = transformers.AutoModel.from_config(make(vocab_size=40, max_position_embeddings=24, **sizes)).eval()
    whole, tokenizer = copy.deepcopy(model), SimpleNamespace(model_max_length=512)
    trim_positions(model, tokenizer, 8)
    assert tokenizer.model_max_length == 8
    described = transformers.AutoModel.from_config(model.config)
    shapes = {name: tensor.shape for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    assert shapes == {
        name: tensor.shape for name, tensor in (*described.named_parameters(), *described.named_buffers())
    }
    ids = torch.arange(4, 20).reshape(2, 8)
    with torch.inference_mode():
        assert torch.equal(model(ids)[0], whole(ids)[0])


def test_positions_that_all_inputs_have_stay(model_folder: Path, data: ClassificationData) -> None:
    result = compress(
        model_folder, data, method="magnitude", density=0.2, training=replace(SHORT, max_length=100),
        dense_baseline=False, trim_positions=True,
    )  # fmt: skip
    assert result.model.config.max_position_embeddings == 64
    assert "the positions are not trimmed: inputs of max_length 64 tokens have all 64 of them" in result.notes
    assert "inputs have at most 64 tokens, as many as the model takes, not 100 (max_length)" in result.notes


def test_another_architecture_is_refused_before_training(
    model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = transformers.XLNetModel(
        transformers.XLNetConfig(vocab_size=40, d_model=32, n_layer=1, n_head=2, d_inner=64)
    )
    with pytest.raises(CompressionError, match=r"albert, bert, .*, got true for XLNetModel; submit without it"):
        check_positions(model)
    monkeypatch.setattr("mvprune_core.storing.positions.TRIMMABLE", ("roberta",))
    monkeypatch.setattr("mvprune_core.runs.steps.CompressionRun.prune", None)
    with pytest.raises(CompressionError, match="trim_positions must be false") as raised:
        compress(model_folder, data, method="magnitude", density=0.2, training=SHORT, trim_positions=True)
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


def test_a_delta_has_all_positions(model_folder: Path, data: ClassificationData) -> None:
    with pytest.raises(ValueError, match="delta must be false with trim_positions"):
        compress(model_folder, data, density=0.2, trim_positions=True, delta=True)


@pytest.mark.slow
def test_an_artifact_refuses_inputs_without_positions(make: Callable[..., tuple[Any, Path]]) -> None:
    """Also one whose positions are not trimmed, in place of an index that is out of range."""
    _, folder = make()
    with pytest.raises(ValueError, match="at most 64 tokens, the model's positions, got 65; cut the input"):
        mvprune.load(folder)(input_ids=torch.ones(1, 65, dtype=torch.int64))
