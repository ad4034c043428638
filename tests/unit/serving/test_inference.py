"""The Open Inference Protocol, the numbers of a server, its description, and whether it is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.serving.descriptions import check_description

Endpoint = Callable[..., httpx.Client]


def tensor(name: str, *texts: str) -> dict[str, Any]:
    return {"name": name, "shape": [len(texts)], "datatype": "BYTES", "data": [*texts]}


def outputs_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in answer["outputs"]}


def test_answers_in_tensors_are_those_of_predict(endpoint: Endpoint) -> None:
    client = endpoint("sst2")
    texts = ["good film", "bad film ."]
    expected = client.post("/predict", json={"inputs": [{"text": text} for text in texts]}).json()["predictions"]
    body = {"id": "7", "inputs": [tensor("text", *texts)]}
    for path in ("/v2/models/tiny/infer", "/v2/models/tiny/versions/1/infer"):
        answer = client.post(path, json=body).json()
        assert (answer["model_name"], answer["model_version"], answer["id"]) == ("tiny", "1", "7")
        found = outputs_of(answer)
        assert found["label"]["data"] == [one["label"] for one in expected]
        assert found["scores"]["parameters"] == {"labels": ["negative", "positive"]}
        assert found["scores"]["shape"] == [2, 2]
        assert found["scores"]["data"] == pytest.approx([score for one in expected for score in one["scores"].values()])
    only = client.post("/v2/models/tiny/infer", json=body | {"outputs": [{"name": "score"}]}).json()
    assert [*outputs_of(only)] == ["score"]
    metadata = client.get("/v2/models/tiny").json()
    assert {one["name"]: one["shape"] for one in metadata["outputs"]} == {
        "label": [-1],
        "score": [-1],
        "scores": [-1, 2],
    }
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]


def test_tensors_of_other_kinds(endpoint: Endpoint) -> None:
    question = {"inputs": [tensor("question", "what is it ?"), tensor("context", "the capital of france is paris .")]}
    found = outputs_of(endpoint("squad").post("/v2/models/tiny/infer", json=question).json())
    assert {name: one["datatype"] for name, one in found.items()} == {
        "answer": "BYTES",
        "score": "FP64",
        "start": "INT64",
        "end": "INT64",
    }
    words = outputs_of(endpoint("ner").post("/v2/models/tiny/infer", json={"inputs": [tensor("text", "paris")]}).json())
    assert words["words"]["data"][0].startswith('[{"word": "paris", "tag": ')


@pytest.mark.parametrize(
    ("body", "field", "status"),
    [
        ({}, "inputs", 422),
        ({"inputs": [tensor("sentence", "a")]}, "inputs[0].name", 422),
        ({"inputs": [tensor("text", "a") | {"datatype": "FP32"}]}, "inputs[0].datatype", 422),
        ({"inputs": [tensor("text", "a") | {"shape": [2]}]}, "inputs[0].shape", 422),
        ({"inputs": [tensor("text", "a", " ")]}, "inputs[0].data[1]", 422),
        ({"inputs": [tensor("text", *"abcd")]}, "inputs[0].data", 413),
        ({"inputs": [tensor("text", "a", "b"), tensor("text_pair", "a")]}, "inputs", 422),
        ({"inputs": [tensor("text_pair", "a")]}, "inputs", 422),
        ({"inputs": [tensor("text", "a")], "outputs": [{"name": "logits"}]}, "outputs[0].name", 422),
    ],
)
def test_refusals(endpoint: Endpoint, body: dict[str, Any], field: str, status: int) -> None:
    answer = endpoint("text-classification").post("/v2/models/tiny/infer", json=body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field), answer.text


def test_another_model_is_not_there(endpoint: Endpoint) -> None:
    client = endpoint("sst2")
    for path in ("/v2/models/other", "/v2/models/tiny/versions/2", "/v2/models/other/ready"):
        assert client.get(path).status_code == 404
    assert client.get("/v2").json()["name"] == "mvprune"
    assert client.get("/v2/models/tiny/ready").json() == {"ready": True}


def numbers(client: httpx.Client) -> dict[tuple[str, str], float]:
    samples = (one for family in text_string_to_metric_families(client.get("/metrics").text) for one in family.samples)
    return {(one.name, one.labels.get("path", "")): one.value for one in samples if "le" not in one.labels}


def test_requests_and_batches_are_counted(endpoint: Endpoint) -> None:
    client = endpoint("sst2")
    client.post("/predict", json={"inputs": [{"text": "good film"}, {"text": "bad film"}]})
    client.post("/v2/models/tiny/infer", json={"inputs": [tensor("text", "good film")]})
    client.post("/predict", json={})
    client.get("/nowhere")
    found = numbers(client)
    assert found["mvprune_serve_requests_total", "/predict"] == 1  # of each status: the last one is 422
    assert found["mvprune_serve_requests_total", "/v2/models/{model}/infer"] == 1
    assert found["mvprune_serve_requests_total", "other"] == 1
    assert found["mvprune_serve_request_seconds_count", "/predict"] == 2
    assert found["mvprune_serve_request_seconds_sum", "/predict"] > 0
    assert (found["mvprune_serve_batch_inputs_sum", ""], found["mvprune_serve_batch_inputs_count", ""]) == (3, 2)
    assert found["mvprune_serve_waiting", ""] == 0


@pytest.mark.parametrize("task", ["sst2", "squad", "ner"])
def test_every_endpoint_is_described_and_its_example_is_answered(endpoint: Endpoint, task: str) -> None:
    check_description(endpoint(task))
