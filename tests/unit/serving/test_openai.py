"""OpenAI's client against the endpoints of its API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from tests.unit.serving.test_generate import Slow
from tests.unit.serving.writers import CHAT, ENGINES, Served, generated, opening
from tests.waiting import PATIENCE

from mvprune.serving.requests import Limits
from mvprune.serving.writing import Wanted

Endpoint = Callable[..., httpx.Client]
CHAT_PROMPT = "[user] hi\n[assistant] "
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module", params=ENGINES)
def decoder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[bool], Served]:
    opened = opening(lambda: tmp_path_factory.mktemp("decoder"))
    return lambda has_chat: opened(request.param, CHAT if has_chat else None, max_new_tokens=12)


@pytest.fixture
def client(endpoint: Endpoint, decoder: Callable[[bool], Served]) -> Callable[..., openai.OpenAI]:
    def of(served: bool | Slow = True) -> openai.OpenAI:
        if isinstance(served, Slow):
            http = endpoint(served, writer=served)
        else:
            http = endpoint(decoder(served), Limits(max_new_tokens=30, max_batch=3))
        url = f"{str(http.base_url).rstrip('/')}/v1"
        return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE, http_client=httpx.Client())

    return of


Client = Callable[..., openai.OpenAI]


def test_models(client: Client) -> None:
    made = client()
    (model,) = made.models.list()
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "mvprune")
    assert made.models.retrieve("tiny") == model
    with pytest.raises(openai.NotFoundError, match="model must be 'tiny', the model that is served, got 'gpt-4'"):
        made.models.retrieve("gpt-4")


def test_a_completion(client: Client, decoder: Callable[[bool], Served]) -> None:
    made = client(False)
    found = made.completions.create(model="tiny", prompt="hello")
    expected = generated(decoder(False), "hello", max_new_tokens=12)
    assert (found.object, found.model, found.id[:5]) == ("text_completion", "tiny", "cmpl-")
    assert [(one.index, one.text, one.finish_reason) for one in found.choices] == [(0, expected, "length")]
    assert found.usage
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (6, 12, 18)
    pieces = list(made.completions.create(model="tiny", prompt="hello", stream=True))
    assert "".join(one.choices[0].text for one in pieces) == expected
    assert [one.choices[0].finish_reason for one in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].choices[0].finish_reason == "length"
    assert {one.id for one in pieces} == {pieces[0].id}
    several = made.completions.create(model="tiny", prompt=["hello", "bye"], max_tokens=5, temperature=0)
    texts = [generated(decoder(False), text, max_new_tokens=5) for text in ("hello", "bye")]
    assert [(one.index, one.text) for one in several.choices] == list(enumerate(texts))


def test_sampling_and_stops(client: Client, decoder: Callable[[bool], Served]) -> None:
    made, settings = client(False), {"temperature": 0.9, "top_p": 0.8}
    for seed in (1, 2):
        found = made.completions.create(model="tiny", prompt="hello", seed=seed, **settings).choices[0]
        expected = decoder(False).writer.write(Wanted("hello", {"do_sample": True, **settings}, seed)).text
        assert found.text == expected
    stop = next(one for one in expected if one != "\ufffd")
    found = made.completions.create(model="tiny", prompt="hello", seed=2, stop=[stop, "xyz"], **settings).choices[0]
    assert (found.text, found.finish_reason) == (expected.partition(stop)[0], "stop")


def test_a_chat(client: Client, decoder: Callable[[bool], Served]) -> None:
    made = client()
    found = made.chat.completions.create(model="tiny", messages=HI, max_completion_tokens=9)
    expected = generated(decoder(True), CHAT_PROMPT, begin="", max_new_tokens=9)
    (choice,) = found.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", expected, "length")
    assert (found.object, found.id[:9]) == ("chat.completion", "chatcmpl-")
    assert found.usage
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(CHAT_PROMPT), 9)
    usage: Any = {"include_usage": True}
    stream = made.chat.completions.create(
        model="tiny", messages=HI, max_tokens=9, temperature=0, stream=True, stream_options=usage
    )
    first, *pieces, last, counts = list(stream)
    assert (first.choices[0].delta.role, first.object) == ("assistant", "chat.completion.chunk")
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == expected
    assert last.choices[0].finish_reason == "length"
    assert (counts.choices, counts.usage) == ([], found.usage)
    parts: Any = [{"type": "text", "text": "hi"}]
    answer: Any = choice.message.model_dump()  # as a program sends it back
    longer = [{"role": "user", "content": parts}, answer | {"content": "a"}, {"role": "user", "content": "b"}]
    found = made.chat.completions.create(model="tiny", messages=longer, max_tokens=3, n=1, presence_penalty=0.0)
    written = "[user] hi\n[assistant] a\n[user] b\n[assistant] "
    assert found.choices[0].message.content == generated(decoder(True), written, begin="", max_new_tokens=3)


def test_a_model_without_a_template_takes_no_chats(client: Client) -> None:
    with pytest.raises(openai.BadRequestError, match="takes no chats: its tokenizer has no chat template"):
        client(False).chat.completions.create(model="tiny", messages=HI)


@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        ({"model": "other"}, "model", "must be 'tiny'"),
        ({"n": 2}, "n", "n is not supported: must be 1, or left out, got 2"),
        ({"temperature": 3}, "temperature", "temperature must be a number from 0 to 2, got 3"),
        ({"temperature": 0.001}, "temperature", "must be 0 or from 0.01 to 2"),
        ({"top_p": -1}, "top_p", "must be a number from 0 to 1"),
        ({"max_tokens": 31}, "max_tokens", "must be an integer from 1 to 30, got 31"),
        ({"max_tokens": 3, "max_completion_tokens": 3}, "max_tokens", "must not be given with max_completion_tokens"),
        ({"stop": ["a"] * 5}, "stop", "a list of up to 4"),
        ({"logprobs": True}, "logprobs", "must be false, or left out"),
        ({"tools": [{"type": "function"}]}, "tools", "must be [], or left out"),
        ({"response_format": {"type": "json_object"}}, "response_format", 'must be {"type": "text"}, or left out'),
        ({"stream_options": {"include_usage": True}}, "stream_options", "must not be given where stream is false"),
        ({"extra_body": {"best": 1}}, "best", "must be one of messages"),
        ({"messages": []}, "messages", "must be a list of 1 to 1,000 messages"),
        (
            {"messages": [{"role": "tool", "content": "a"}]},
            "messages[0].role",
            "must be one of system, user, assistant",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "must be a string, got null"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "text only"),
        ({"messages": [{"role": "user", "content": "a", "name": "b"}]}, "messages[0].name", "must be one of role"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages", "chat template takes: no system, please"),
        ({"messages": [{"role": "user", "content": "a" * 99}]}, "messages", "must have at most 64 tokens"),
    ],
)
def test_refusals(client: Client, given: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        client().chat.completions.create(**({"model": "tiny", "messages": HI} | given))
    error: Any = raised.value
    assert error.status_code == (404 if param == "model" else 400)
    assert (error.param, error.type) == (param, "invalid_request_error")
    assert message in error.message
    code = {"must be 'tiny'": "model_not_found", "must have at most 64 tokens": "context_length_exceeded"}.get(message)
    assert error.code == code


def test_failures_are_errors_of_the_client(client: Client) -> None:
    made = client(Slow())
    with pytest.raises(openai.InternalServerError) as raised:
        made.completions.create(model="tiny", prompt="break")
    assert isinstance(raised.value.body, dict)
    assert (raised.value.body["type"], "secret" in raised.value.message) == ("server_error", False)
    stream = made.completions.create(model="tiny", prompt="break", stream=True)
    assert [next(stream).choices[0].text for _ in range(3)] == ["a"] * 3
    with pytest.raises(openai.APIError, match="the model failed on this request"):
        next(stream)
    for prompts in (["a", "b"], ["a"] * 17, []):
        with pytest.raises(openai.BadRequestError, match="prompt must be "):
            made.completions.create(model="tiny", prompt=prompts, stream=True)
