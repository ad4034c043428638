"""The endpoint: answers, and refusals that name the field."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import torch

from mvprune.serving.requests import Limits
from mvprune_core.prediction import Field, Predictor

Endpoint = Callable[..., httpx.Client]
Predictors = Callable[[str], Predictor]
JSON = {"Content-Type": "application/json"}


def logits(predictor: Predictor, *texts: str) -> torch.Tensor:
    """What transformers' own way of calling the model gives."""
    loaded = predictor.opened.loaded
    with torch.inference_mode():
        return loaded.model(**loaded.tokenizer(*texts, return_tensors="pt")).logits


def test_classification(endpoint: Endpoint, predictor: Predictors) -> None:
    client = endpoint("sst2")
    expected = logits(predictor("sst2"), "good film .").softmax(dim=1)[0].tolist()
    found = client.post("/predict", json={"text": "good film ."}).json()
    assert found["scores"] == pytest.approx(dict(zip(("negative", "positive"), expected, strict=True)), abs=1e-6)
    assert found["score"] == max(found["scores"].values())
    assert found["label"] == max(found["scores"], key=found["scores"].get)


def test_a_list_is_answered_in_its_order_whatever_the_lengths(endpoint: Endpoint) -> None:
    client = endpoint("text-classification")
    inputs = [{"text": "good film . " * 9}, {"text": "bad", "text_pair": "film"}, {"text": "paris"}]
    alone = [client.post("/predict", json=given).json()["scores"] for given in inputs]
    together = client.post("/predict", json={"inputs": inputs}).json()["predictions"]
    assert [answer["scores"] for answer in together] == [pytest.approx(scores, abs=1e-5) for scores in alone]


def test_regression_over_a_pair(endpoint: Endpoint, predictor: Predictors) -> None:
    found = endpoint("stsb").post("/predict", json={"text": "good film", "text_pair": "bad film"}).json()
    assert found == {"value": pytest.approx(logits(predictor("stsb"), "good film", "bad film").item(), abs=1e-5)}


def test_question_answering(endpoint: Endpoint) -> None:
    context = "the capital of france is paris . " * 3
    found = endpoint("squad").post("/predict", json={"question": "what is it ?", "context": context}).json()
    assert found["answer"] == context[found["start"] : found["end"]] != ""
    assert isinstance(found["score"], float)


def test_no_answer(predictor: Predictors, monkeypatch: pytest.MonkeyPatch) -> None:
    squad = predictor("squad_v2")
    head = squad.opened.loaded.model.qa_outputs
    monkeypatch.setattr(head, "forward", lambda hidden: torch.zeros(*hidden.shape[:2], 2).index_fill(1, ZERO, 9.0))
    (found,) = squad.predict([{"question": "what ?", "context": "paris"}])
    assert found == {"answer": "", "score": 18.0, "start": 0, "end": 0}


ZERO = torch.tensor([0])


def test_token_classification(endpoint: Endpoint) -> None:
    text = "The  capital of france, is Paris."
    words = endpoint("ner").post("/predict", json={"text": text}).json()["words"]
    assert [word["word"] for word in words] == ["The", "capital", "of", "france", ",", "is", "Paris", "."]
    assert all(text[word["start"] : word["end"]] == word["word"] for word in words)
    assert {word["tag"] for word in words} <= {"O", "B-LOC", "I-LOC"}


@pytest.mark.parametrize(
    ("task", "body", "status", "field", "message"),
    [
        ("sst2", b"{", 400, "", "must be JSON"),
        ("sst2", b'{"text": "a", "text": "b"}', 400, "", "twice"),
        ("sst2", b"[" * 3000, 400, "", "must be JSON"),
        ("sst2", b'["a"]', 422, "", "a list"),
        ("sst2", b"{}", 422, "text", "got nothing"),
        ("sst2", b'{"text": null}', 422, "text", "null"),
        ("sst2", b'{"text": " "}', 422, "text", "blank"),
        ("sst2", b'{"text": "\\ud800"}', 422, "text", "surrogate"),
        ("sst2", b'{"text": "a", "text_pair": "b"}', 422, "text_pair", "must be one of text, got 'text_pair'"),
        ("mrpc", b'{"text": "a"}', 422, "text_pair", "got nothing"),
        ("sst2", b'{"text": "%s"}' % (b"a" * 201), 413, "text", "at most 200 characters, got 201"),
        ("sst2", b'{"inputs": []}', 422, "inputs", "empty"),
        ("sst2", b'{"inputs": [{"text": "a"}], "text": "b"}', 422, "text", "must be one of inputs, got 'text'"),
        ("sst2", b'{"inputs": [{"text": "a"}, {"text": 1}]}', 422, "inputs[1].text", "a number"),
        ("sst2", b'{"inputs": [{}, {}, {}, {}]}', 413, "inputs", "at most 3"),
        ("squad", b'{"question": "what ?"}', 422, "context", "got nothing"),
        ("sst2", b" " * 4097, 413, "", "4,096 bytes"),
    ],
)
def test_refusals(endpoint: Endpoint, task: str, body: bytes, status: int, field: str, message: str) -> None:
    answer = endpoint(task).post("/predict", content=body, headers=JSON)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["field"] == field
    assert message in error["message"]


def test_a_body_of_unknown_length_is_limited_too(endpoint: Endpoint) -> None:
    assert endpoint("sst2").post("/predict", content=iter([b" " * 3000] * 2), headers=JSON).status_code == 413


def test_other_pages(endpoint: Endpoint) -> None:
    client = endpoint("sst2")
    assert client.get("/").json() == {"task": "it", "model": "tiny"}
    assert client.get("/health").json() == {"status": "ok", "waiting": 0}
    assert client.get("/predict").status_code == 405
    assert client.get("/x").json()["error"]["message"].startswith("Not Found")


class Held:
    """A predictor that begins when it is told to."""

    fields = (Field("text"),)

    def __init__(self) -> None:
        self.busy, self.go = threading.Event(), threading.Event()
        self.seen: list[list[str]] = []

    def predict(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        self.seen.append([given["text"] for given in inputs])
        self.busy.set()
        assert self.go.wait(30)
        if any(given["text"] == "break" for given in inputs):
            raise RuntimeError("secret")
        return [{"text": given["text"]} for given in inputs]


def test_overload_is_refused_and_what_waits_is_answered(endpoint: Endpoint) -> None:
    model = Held()
    client = endpoint(model, Limits(max_waiting=1))
    with ThreadPoolExecutor(2) as callers:
        first = callers.submit(client.post, "/predict", json={"text": "first"})
        assert model.busy.wait(30)
        second = callers.submit(client.post, "/predict", json={"text": "second"})
        while client.get("/health").json()["waiting"] < 1:
            pass
        refused = client.post("/predict", json={"text": "third"})
        model.go.set()
        assert [answer.result().json() for answer in (first, second)] == [{"text": "first"}, {"text": "second"}]
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


def test_a_failure_tells_nothing_of_the_inside(endpoint: Endpoint) -> None:
    model = Held()
    model.go.set()
    client = endpoint(model)
    answer = client.post("/predict", json={"text": "break"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert client.post("/predict", json={"text": "fine"}).json() == {"text": "fine"}
