"""A model of vectors over HTTP: OpenAI's client, and the form of text-embeddings-inference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from tests.unit.serving.conftest import tiny_result
from tests.unit.serving.descriptions import check_description
from tests.waiting import PATIENCE
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from mvprune import load
from mvprune.artifact import round_values, save_model
from mvprune.serving.requests import Limits
from mvprune.sources.sentence_transformers import KEY, SentenceEmbedding
from mvprune_core.prediction import Predictor

WIDTH = 16
TEXTS = ["good", "bad and poor", "great fine"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    """An artifact whose vectors are not of length 1."""
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model: Any = BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()
    setattr(model.config, KEY, SentenceEmbedding(prompts={"query": "good "}, max_seq_length=8).content)
    pruned = [name for name, value in model.named_parameters() if ".layer." in name and value.ndim == 2]
    round_values(model, pruned)
    folder = tmp_path_factory.mktemp("embedder") / "out"
    save_model(folder, model, tokenizer, pruned=pruned, result=tiny_result("embedding", model, pruned))
    return folder


@pytest.fixture
def client(endpoint: Callable[..., httpx.Client], embedder: Path) -> httpx.Client:
    return endpoint(Predictor.open(embedder), Limits(max_batch=2, max_characters=200), width=WIDTH)


@pytest.fixture
def vectors(embedder: Path) -> np.ndarray[Any, Any]:
    model: Any = load(embedder)
    found: np.ndarray[Any, Any] = model.encode(TEXTS)
    return found


def test_the_endpoints_are_described(client: httpx.Client) -> None:
    assert {"/embed", "/v1/embeddings", "/v1/models/{model}"} <= check_description(client)


@pytest.mark.parametrize("form", ["float", "base64"])
def test_a_client_of_openai_gets_vectors(client: httpx.Client, vectors: np.ndarray[Any, Any], form: Any) -> None:
    url = f"{str(client.base_url).rstrip('/')}/v1"
    theirs = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE, http_client=httpx.Client())
    options = {} if form == "base64" else {"encoding_format": form}  # the client asks for base64 by itself
    answer = theirs.embeddings.create(model="tiny", input=TEXTS, **options)
    assert [one.index for one in answer.data] == [0, 1, 2]
    np.testing.assert_allclose([one.embedding for one in answer.data], vectors, atol=1e-6)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 3 + 5 + 4
    few = theirs.embeddings.create(model="tiny", input="good", dimensions=4).data[0].embedding
    np.testing.assert_allclose(few, vectors[0, :4] / np.linalg.norm(vectors[0, :4]), atol=1e-6)
    assert [one.id for one in theirs.models.list()] == ["tiny"]
    with pytest.raises(openai.NotFoundError, match="must be 'tiny', the model that is served, got 'other'"):
        theirs.embeddings.create(model="other", input="good")
    with pytest.raises(openai.BadRequestError, match="numbers of tokens are not read"):
        theirs.embeddings.create(model="tiny", input=[1, 2])


def test_embed_answers_as_text_embeddings_inference(client: httpx.Client, vectors: np.ndarray[Any, Any]) -> None:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(client.post("/embed", json={"inputs": TEXTS}).json(), vectors / lengths, atol=1e-6)
    plain = client.post("/embed", json={"inputs": TEXTS[1], "normalize": False, "truncate": True}).json()
    np.testing.assert_allclose(plain, vectors[1:2], atol=1e-6)
    asked = client.post("/embed", json={"inputs": "fine", "prompt_name": "query", "dimensions": 3}).json()
    same = client.post("/embed", json={"inputs": "good fine", "dimensions": 3}).json()
    np.testing.assert_allclose(asked, same, atol=1e-6)


def test_predict_gives_vectors_and_tokens(client: httpx.Client, vectors: np.ndarray[Any, Any]) -> None:
    answer = client.post(
        "/predict", json={"inputs": [{"text": TEXTS[0]}, {"text": "fine", "prompt_name": "query"}]}
    ).json()
    np.testing.assert_allclose(answer["predictions"][0]["embedding"], vectors[0], atol=1e-6)
    assert [one["tokens"] for one in answer["predictions"]] == [3, 4]


@pytest.mark.parametrize(
    ("path", "body", "field", "error"),
    [
        ("/embed", {"inputs": []}, "inputs", "must be a text or 1 to 2,048 texts, got 0"),
        ("/embed", {"inputs": ["a", " "]}, "inputs[1]", "must not be blank"),
        ("/embed", {}, "inputs", "must be a string, got null"),
        ("/embed", {"inputs": "a", "truncate": False}, "truncate", "must be true, or left out"),
        ("/embed", {"inputs": "a", "prompt_name": "code"}, "prompt_name", "must be one of the model's"),
        ("/embed", {"inputs": "a", "prompt_name": 1}, "prompt_name", "must be the name of a prompt"),
        ("/embed", {"inputs": "a", "dimensions": 17}, "dimensions", "must be an integer from 1 to 16, got 17"),
        ("/embed", {"inputs": "a", "input": "a"}, "input", "must be one of"),
        ("/predict", {"text": "a", "prompt_name": "code"}, "prompt_name", "must be one of the model's"),
    ],
)
def test_what_is_wrong_is_said(client: httpx.Client, path: str, body: Any, field: str, error: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    found = answer.json()["error"]
    assert found["field"] == field
    assert error in found["message"]


def test_other_forms_of_numbers_are_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"model": "tiny", "input": "a", "encoding_format": "int8"})
    assert answer.status_code == 400
    assert "encoding_format must be float or base64, got 'int8'" in answer.json()["error"]["message"]
