"""The padding token's id in config.json and in the tokenizer: the given model's outputs stay, or it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.core.architectures import LEFT, RIGHT, build
from tests.unit.core.conftest import sentences
from tokenizers import processors

import mvprune.hf  # noqa: F401 (registers the format)
from mvprune import load
from mvprune.data.loading import ClassificationData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Reason, compress
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import Objective

TEXTS = ["word1 good word3 word4 bad word5", "fine word7", "word9 word10 word2"]
COUNT_FROM_PADDING = {
    "camembert", "data2vec-text", "esm", "longformer", "luke", "roberta", "xlm-roberta", "xmod"
}  # fmt: skip
OTHER = 1  # by config.json; by the tokenizer it is 0


FEW = ClassificationData(get_task("sst2"), ("negative", "positive"), sentences(8, 1), sentences(8, 2))


def given(name: str, **changes: Any) -> Any:
    options = (RIGHT | LEFT)[name] | {"pad_token_id": OTHER, "id2label": {0: "negative", 1: "positive"}}
    return build(name, options | ({"pad_index": OTHER} if "pad_index" in options else {}) | changes)


def alone(model: Any, tokenizer: Any, texts: list[str] = TEXTS) -> list[list[float]]:
    with torch.inference_mode():
        batches = [tokenizer(text, return_tensors="pt")["input_ids"] for text in texts]
        return [model.eval()(input_ids=ids).logits[0].tolist() for ids in batches]


def as_a_user(model: Any, folder: Path, texts: list[str] = TEXTS) -> list[list[float]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        return model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted((RIGHT | LEFT).keys() - {"squeezebert"}))  # its blocks have no matrices
def test_an_artifact_computes_what_the_given_model_does(save: Callable[..., Path], tmp_path: Path, name: str) -> None:
    model = given(name)
    if name == "mobilebert":  # has the neighbours of a token as input, and those of the last one must be zeros
        model.get_input_embeddings().weight.data[0] = 0
    folder = save(model)
    expected = alone(model, transformers.AutoTokenizer.from_pretrained(folder))
    exact: dict[str, Any] = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
    result = compress(folder, FEW, density=1.0, keep_fine_tuned=True, **exact)
    result.save(tmp_path / "out")
    for opened in (
        load(tmp_path / "out"),
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out"),
    ):
        found = as_a_user(opened, tmp_path / "out")
        assert found == [pytest.approx(row, rel=1e-3, abs=1e-4) for row in expected]
    kept = name in COUNT_FROM_PADDING
    assert opened.config.pad_token_id == (OTHER if kept else 0)
    [note] = [note for note in result.notes if note.startswith("the padding token has the id 1 by config.json and 0")]
    assert ("texts are padded with the tokenizer's" if kept else "the outputs are the same") in note


@pytest.mark.slow
def test_equal_ids_need_no_note(save: Callable[..., Path], objective: Objective) -> None:
    loaded = load_model(find_model(save(given("roberta", pad_token_id=0)), None), objective, seed=0)
    assert not loaded.notes


@pytest.mark.slow
def test_a_decoder_without_an_id_takes_that_of_the_tokenizer(save: Callable[..., Path], objective: Objective) -> None:
    loaded = load_model(find_model(save(given("gpt2", pad_token_id=None)), None), objective, seed=0)
    assert loaded.config.pad_token_id == 0
    assert not loaded.notes


@pytest.mark.slow
def test_a_padding_token_that_ends_every_text_is_refused(save: Callable[..., Path], objective: Objective) -> None:
    folder = save(given("llama", pad_token_id=None))
    ends = transformers.AutoTokenizer.from_pretrained(folder)
    ends.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", special_tokens=[("[SEP]", 3)]
    )
    ends.pad_token = "[SEP]"
    ends.save_pretrained(folder)
    with pytest.raises(CompressionError, match=r"pad_token_id must be the same .* got None and 3,") as raised:
        load_model(find_model(folder, None), objective, seed=0)
    assert raised.value.reason is Reason.INVALID_MODEL
