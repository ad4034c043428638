"""POST /generate: texts, whole and as server-sent events."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.serving.descriptions import check_description
from tests.unit.serving.writers import ENGINES, Opening, Served, generated, opening, write_decoder
from tests.waiting import PATIENCE, until

from mvprune.cli import main
from mvprune.serving import server
from mvprune.serving.app import application
from mvprune.serving.events import event
from mvprune.serving.requests import Limits
from mvprune.serving.writing import Piece, PromptRefused, Wanted, Written
from mvprune_core.prediction import Field

Endpoint = Callable[..., httpx.Client]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opening:
    return opening(lambda: tmp_path_factory.mktemp("decoder"))


@pytest.fixture(params=ENGINES)
def decoder(opened: Opening, request: pytest.FixtureRequest) -> Served:
    return opened(request.param)


def events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The names and the JSON of the events of an answer."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    for block in answer.text.split("\n\n")[:-1]:
        lines = dict(line.split(": ", maxsplit=1) for line in block.split("\n"))
        yield lines.get("event", ""), json.loads(lines["data"])


@pytest.mark.slow
def test_the_endpoints_are_described(endpoint: Endpoint, decoder: Served) -> None:
    assert {"/generate", "/v1/completions"} <= check_description(endpoint(decoder))


def test_whole_and_streamed_texts_are_those_of_generate(endpoint: Endpoint, decoder: Served) -> None:
    client = endpoint(decoder)
    of_torch: Any = ({"do_sample": True, "temperature": 0.8, "seed": 4},)
    for parameters in ({}, {"num_beams": 3}, *(of_torch if decoder.writer is decoder.dense.writer else ())):
        parameters |= {"max_new_tokens": 20}
        whole = client.post("/generate", json={"inputs": "hello", "parameters": parameters}).json()
        seed = parameters.pop("seed", 0)
        assert whole == {
            "generated_text": generated(decoder, "hello", seed=seed, **parameters),
            "finish_reason": "length",
            "prompt_tokens": 6,
            "generated_tokens": 20,
            "truncated_tokens": 0,
        }
        body = {"inputs": "hello", "parameters": parameters | {"seed": seed}, "stream": True}
        *pieces, (name, end) = events(client.post("/generate", json=body))
        assert (name, end) == ("end", whole)
        assert {name for name, _ in pieces} == {""}
        assert "".join(piece["text"] for _, piece in pieces) == whole["generated_text"]
        assert len(pieces) == 1 if "num_beams" in parameters else len(pieces) > 3


def test_no_text_breaks_an_event() -> None:
    text = "a\n\r\u2028\u2029\x85\x0b\x1c\0é🎉\ufffd'\"\\"
    sent = event({"text": text}, "end")
    assert len(sent.splitlines()) == 3
    assert json.loads(sent.splitlines()[1].removeprefix("data: ")) == {"text": text}


@pytest.mark.slow
def test_callers_at_once_get_what_each_gets_alone(endpoint: Endpoint, decoder: Served) -> None:
    client = endpoint(decoder, Limits(max_generations=3))
    bodies = [{"inputs": f"text {number}", "parameters": {"max_new_tokens": 20}} for number in range(8)]
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda body: client.post("/generate", json=body).json(), bodies))
    for number, answer in enumerate(answers):
        assert answer["generated_text"] == generated(decoder, f"text {number}", max_new_tokens=20)


def test_plain_predictions_are_written_by_the_settings_of_the_model(endpoint: Endpoint, decoder: Served) -> None:
    client = endpoint(decoder)
    inputs = [{"text": "hello"}, {"text": "a" * 99}]
    expected = decoder.dense.predict(inputs)
    assert client.post("/predict", json={"inputs": inputs}).json() == {"predictions": expected}
    assert expected[1]["truncated_tokens"] == 68


@pytest.mark.parametrize(
    ("body", "status", "field", "message"),
    [
        ({}, 422, "inputs", "must be a string, got null"),
        ({"inputs": "a", "prompt": "b"}, 422, "prompt", "must be one of inputs, parameters, stream, got 'prompt'"),
        ({"inputs": "a", "parameters": []}, 422, "parameters", "must be an object, got a list"),
        ({"inputs": "a", "stream": 1}, 422, "stream", "must be true or false, got 1"),
        (
            {"inputs": "a" * 60},
            413,
            "inputs",
            'positions, less 20 for new tokens, got 61; shorten it, or pass "truncate',
        ),
        ({"top_q": 1}, 422, "parameters.top_q", "did you mean top_p?"),
        ({"temperature": 0}, 422, "parameters.temperature", "must be a number from 0.01 to 100, got 0"),
        ({"temperature": "hot"}, 422, "parameters.temperature", "must be a number from 0.01 to 100, got 'hot'"),
        ({"temperature": True}, 422, "parameters.temperature", "got true or false"),
        ({"top_p": 1.5}, 422, "parameters.top_p", "must be a number from 0 to 1, got 1.5"),
        ({"top_k": 1.5}, 422, "parameters.top_k", "must be an integer from 0 to 1,000,000, got 1.5"),
        ({"max_new_tokens": 31}, 422, "parameters.max_new_tokens", "must be an integer from 1 to 30, got 31"),
        ({"seed": -1}, 422, "parameters.seed", "must be an integer from 0 to"),
        ({"do_sample": False, "top_p": 0.5}, 422, "parameters.top_p", "must not be given where do_sample is false"),
        ({"stop": ["a", ""]}, 422, "parameters.stop", "must be a text that is not empty, or a list of up to 4"),
        ({"stop": list("abcde")}, 422, "parameters.stop", "got a list"),
        ({"num_beams": 17}, 422, "parameters.num_beams", "must be an integer from 1 to 16, got 17"),
    ],
)
def test_refusals(
    endpoint: Endpoint, decoder: Served, body: dict[str, Any], status: int, field: str, message: str
) -> None:
    client = endpoint(decoder, Limits(max_new_tokens=30))
    given = body if field in ("inputs", "prompt", "parameters", "stream") else {"inputs": "a", "parameters": body}
    if status == 413:
        given = given | {"parameters": {"max_new_tokens": 20}}
    for stream in ({}, {"stream": True}):
        answer = client.post("/generate", json=stream | given)
        assert answer.status_code == status
        assert answer.json()["error"]["field"] == field
        assert message in answer.json()["error"]["message"]


def test_the_native_engine_refuses_to_sample_beams_and_says_what_does(endpoint: Endpoint, opened: Opening) -> None:
    client = endpoint(opened("native"))
    answer = client.post("/generate", json={"inputs": "a", "parameters": {"num_beams": 2, "top_p": 0.9}})
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        {
            "field": "parameters.num_beams",
            "message": "must be 1 or left out where a text is sampled (the native engine samples no beams; "
            "mvpctl serve --engine torch does), got 2",
        },
    )
    neutral = {"num_beams": 1, "length_penalty": 0.5, "max_new_tokens": 5}
    answer = client.post("/generate", json={"inputs": "hello", "parameters": neutral})
    assert answer.json()["generated_text"] == generated(opened("torch"), "hello", max_new_tokens=5)
    client = endpoint(opened("native", num_beams=2))
    error = client.post("/generate", json={"inputs": "a", "parameters": {"top_p": 0.9}}).json()["error"]
    assert error["message"].startswith(
        "cannot be written with these parameters: do_sample must be false where num_beams is above 1"
    )


def test_null_is_the_default_and_cut_prompts_are_said(endpoint: Endpoint, decoder: Served) -> None:
    client = endpoint(decoder)
    nothing = {"parameters": {"temperature": None, "stop": None, "max_new_tokens": 10}, "stream": None}
    whole = client.post("/generate", json={"inputs": "hello", **nothing}).json()
    assert whole["generated_text"] == generated(decoder, "hello", max_new_tokens=10)
    body = {"inputs": "b" * 50 + "a" * 53, "parameters": {"truncate": True, "max_new_tokens": 10}}
    answer = client.post("/generate", json=body).json()
    assert (answer["prompt_tokens"], answer["truncated_tokens"]) == (54, 50)
    assert answer["generated_text"] == generated(decoder, "a" * 53, max_new_tokens=10)


def test_other_models_have_no_such_endpoint(endpoint: Endpoint) -> None:
    answer = endpoint("sst2").post("/generate", json={"inputs": "a"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "Not Found: GET /docs lists the endpoints"


class Slow:
    """Writes a letter a millisecond until it is told to end; "break" and "refuse" do so, at the first or third one."""

    fields = (Field("text"),)
    why_no_chat = why_no_sampled_beams = ""

    def __init__(self) -> None:
        self.running, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.over = threading.Event()  # the time of every text

    def predict(self, inputs: Any) -> list[dict[str, Any]]:
        raise NotImplementedError

    def write(
        self, wanted: Wanted, hear: Callable[[Piece], None] | None = None, is_stopped: Callable[[], bool] = bool
    ) -> Written:
        if wanted.prompt == "refuse":
            raise PromptRefused("must be nice, got refuse")
        assert hear
        if wanted.prompt != "break at once":
            hear(Piece("", 0))
        self.running.release()
        tokens, last = 0, time.monotonic() + wanted.seconds
        while not (is_stopped() or self.over.is_set()) and time.monotonic() < last and wanted.prompt != "short":
            if str(wanted.prompt).startswith("break") and tokens == 3:
                raise RuntimeError("secret")
            if wanted.prompt != "break at once":
                hear(Piece("a", 1))
            tokens += 1
            time.sleep(0.001)
        self.ended.release()
        return Written("a" * tokens, tokens, "time", 1, 0)


def slow(endpoint: Endpoint, **limits: Any) -> tuple[Slow, httpx.Client]:
    model = Slow()
    return model, endpoint(model, Limits(**limits), writer=model)


@contextlib.contextmanager
def asked(client: httpx.Client, path: str, body: dict[str, Any]) -> Iterator[None]:
    """In its block a client waits for an answer; then it hangs up."""
    content = json.dumps(body)
    headers = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as made:
        made.sendall(f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n{content}".encode())
        yield


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"inputs": "a"}),
        ("/v1/completions", {"model": "tiny", "prompt": "a"}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_a_client_that_hangs_up_ends_its_text(
    endpoint: Endpoint, path: str, body: dict[str, Any], stream: bool
) -> None:
    model, client = slow(endpoint, max_generations=1)
    for _ in range(3):
        with asked(client, path, {**body, "stream": stream}):
            assert model.running.acquire(timeout=PATIENCE)
            assert client.get("/health").json() == {"status": "ok", "waiting": 0, "running": 1}
        assert model.ended.acquire(timeout=PATIENCE), "it ends long before its time is over"
    answer = client.post("/generate", json={"inputs": "short"})
    assert answer.json()["generated_tokens"] == 0, "the slot is free"


def test_a_client_that_hangs_up_while_it_waits_is_dropped(endpoint: Endpoint) -> None:
    model, client = slow(endpoint, max_generations=1)

    def waiting() -> int:
        found: int = client.get("/health").json()["waiting"]
        return found

    with asked(client, "/predict", {"text": "first"}):
        assert model.running.acquire(timeout=PATIENCE)
        for body in ({"inputs": "second", "stream": True}, {"inputs": "third"}):
            with asked(client, "/generate", body):
                until(lambda: waiting() == 1)
            until(lambda: waiting() == 0)
    assert model.ended.acquire(timeout=PATIENCE)
    assert client.post("/generate", json={"inputs": "short"}).status_code == 200
    assert model.running.acquire(timeout=PATIENCE)
    assert not model.running.acquire(blocking=False), "those that hung up were never begun"


def test_others_wait_up_to_a_limit_and_health_answers(endpoint: Endpoint) -> None:
    model, client = slow(endpoint, max_generations=2, max_waiting=1)
    with ThreadPoolExecutor(3) as callers:
        running = [callers.submit(client.post, "/generate", json={"inputs": "a"}) for _ in range(2)]
        for _ in range(2):
            assert model.running.acquire(timeout=PATIENCE)
        waiting = callers.submit(client.post, "/generate", json={"inputs": "short"})
        while (health := client.get("/health").json())["waiting"] < 1:
            assert health["running"] == 2
        refused = client.post("/generate", json={"inputs": "a"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        model.over.set()
        answers = [one.result().json() for one in running]
        assert waiting.result().json()["generated_tokens"] == 0
    assert [answer["finish_reason"] for answer in answers] == ["time", "time"]
    free = {"status": "ok", "waiting": 0, "running": 0}
    until(lambda: client.get("/health").json() == free)  # a place is free soon after its answer


def test_failures(endpoint: Endpoint) -> None:
    _, client = slow(endpoint)
    for body in ({"inputs": "break"}, {"inputs": "break at once", "stream": True}):
        answer = client.post("/generate", json=body)
        assert (answer.status_code, "secret" in answer.text) == (500, False)
    *pieces, (name, error) = events(client.post("/generate", json={"inputs": "break", "stream": True}))
    assert [piece["text"] for _, piece in pieces] == ["a"] * 3
    assert (name, error["error"]["message"][:16]) == ("error", "the model failed")
    answer = client.post("/generate", json={"inputs": "refuse", "stream": True})
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        {"field": "inputs", "message": "must be nice, got refuse"},
    )
    assert client.post("/predict", json={"text": "refuse"}).json()["error"]["field"] == "text"
    assert client.post("/generate", json={"inputs": "short"}).status_code == 200
    until(lambda: client.get("/health").json()["running"] == 0)  # a place is free soon after its answer


def test_texts_end_when_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LAST_SECONDS", server._GRACE_SECONDS - 0.5)
    model, limits = Slow(), Limits(max_generations=1)
    with server.listen("127.0.0.1", 0) as listening, ThreadPoolExecutor(4) as threads:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        running = server.http_server(application(model, {"model": "tiny"}, limits, writer=model), limits)
        ended = threads.submit(running.run, sockets=[listening])
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            body = {"inputs": "a", "stream": True}
            first = threads.submit(client.post, "/generate", json=body)
            assert model.running.acquire(timeout=PATIENCE)
            second = threads.submit(client.post, "/generate", json=body)
            until(lambda: client.get("/health").json()["waiting"] == 1)
            running.should_exit = True
            *pieces, (name, end) = events(first.result())
            assert (name, end["finish_reason"], len(pieces)) == ("end", "time", end["generated_tokens"])
            assert second.result().status_code == 503
        ended.result(PATIENCE)


def test_an_artifact_is_served_with_its_limits(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(server, "run", lambda application, listening, limits: made.append((application, limits)))
    options = ["--max-new-tokens", "7", "--max-generations", "2", "--generation-timeout", "3", "-o", "json"]
    assert main(["serve", str(write_decoder(tmp_path / "out")), "--address", "127.0.0.1:0", *options]) == 0
    limits = json.loads(capsys.readouterr().out)["limits"]
    assert (limits["max_new_tokens"], limits["max_generations"], limits["generation_seconds"]) == (7, 2, 3.0)
    ((application, used),) = made
    assert used.max_new_tokens == 7
    assert "/generate" in [route.path for route in application.routes]
