"""Tokenizers that come as a SentencePiece model without a tokenizer.json."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import DebertaV2Config, DebertaV2Model, PreTrainedModel, XLMRobertaConfig, XLMRobertaModel

from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Reason, Training, compress
from mvprune_core.models import loading as models
from mvprune_core.models.artifact_loading import open_artifact
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import Objective

TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
DEBERTA = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
LAYOUTS: dict[str, tuple[Callable[[], PreTrainedModel], str, dict[str, Any], int, tuple[int, int]]] = {
    # the model, its file, how the pieces are trained, how far its ids are from the pieces', what is around a text
    "deberta-v3": (
        lambda: DebertaV2Model(DebertaV2Config(**TINY, vocab_size=128, relative_attention=True)),
        "spm.model",
        DEBERTA | {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3},
        0,
        (1, 2),
    ),
    "xlm-roberta": (
        lambda: XLMRobertaModel(XLMRobertaConfig(**TINY, vocab_size=128, pad_token_id=1)),
        "sentencepiece.bpe.model",
        {},
        1,
        (0, 2),
    ),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(layout: str, data: ClassificationData, tmp_path: Path) -> Path:
    build, file, options, _, _ = LAYOUTS[layout]
    build().save_pretrained(tmp_path / "model")
    pieces = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(data.train.texts),
        model_writer=pieces,
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    (tmp_path / "model" / file).write_bytes(pieces.getvalue())
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    return tmp_path / "model"


def test_texts_become_the_pieces_of_the_model(layout: str, folder: Path, data: ClassificationData) -> None:
    _, file, _, offset, (first, last) = LAYOUTS[layout]
    artifact = folder.parent / "artifact"
    quick = Training(max_steps=5, batch_size=32)
    result = compress(folder, data, method="magnitude", density=0.5, training=quick, dense_baseline=False)
    result.save(artifact)
    assert not list(artifact.glob("*.model"))  # a tokenizer.json: who loads it needs no sentencepiece
    pieces = SentencePieceProcessor(model_file=str(folder / file))
    for tokenizer in (result.tokenizer, open_artifact(artifact).loaded.tokenizer):
        for text in data.validation.texts[:20]:
            expected = [first, *(piece + offset for piece in pieces.encode(text)), last]
            assert tokenizer(text)["input_ids"] == expected


def test_without_the_package_the_error_names_it(
    folder: Path, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    with pytest.raises(CompressionError, match=r"pip install sentencepiece`, or put a tokenizer\.json") as raised:
        load_model(find_model(folder, None), objective, seed=0)
    assert raised.value.reason is Reason.MISSING_DEPENDENCY


def test_a_file_that_is_no_sentencepiece_model(layout: str, folder: Path, objective: Objective) -> None:
    file = LAYOUTS[layout][1]
    (folder / file).write_bytes(b"\x00damaged" * 100)
    with pytest.raises(
        CompressionError, match=rf"cannot read {file} as a SentencePiece model; put a tokenizer\.json"
    ) as raised:
        load_model(find_model(folder, None), objective, seed=0)
    assert raised.value.reason is Reason.INVALID_MODEL
