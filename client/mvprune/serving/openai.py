"""Endpoints of OpenAI's API, for clients that know it: /v1/completions, /v1/chat/completions, /v1/models."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mvprune.serving.batching import ModelFailed
from mvprune.serving.errors import error_of
from mvprune.serving.events import event, streamed, unless_gone
from mvprune.serving.fields import Fields, Refused, check_text, kind_of, parse_object
from mvprune.serving.generate import MAX_SEED, MAX_STOPS, MIN_TEMPERATURE
from mvprune.serving.generations import Generations
from mvprune.serving.requests import Limits, read_body
from mvprune.serving.writing import Messages, PromptRefused, Wanted, Writer, Written

_ROLES = ("system", "user", "assistant")
_MAX_MESSAGES = 1000
_DONE = event("[DONE]")

_COMMON = ("model", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "stream_options", "user")
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "metadata": ({},),
}
"""Fields of which only the values are supported that change nothing."""
_OF_BOTH = ("n", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs")
_OF_COMPLETIONS = (*_OF_BOTH, "best_of", "echo", "suffix")
_OF_CHATS = tuple(name for name in _NEUTRAL if name not in ("best_of", "echo", "suffix"))


@dataclass(frozen=True)
class _Form:
    """How one endpoint says things.

    Attributes:
        prompt: the field with the prompt.
        kind: of the object that is a whole answer.
        chunk: of one that is a part.
        prefix: of identifiers.
    """

    prompt: str
    kind: str
    chunk: str
    prefix: str

    @property
    def is_chat(self) -> bool:
        return self.prompt == "messages"

    def text(self, text: str) -> dict[str, Any]:
        """The whole text of a choice."""
        return {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}

    def delta(self, **parts: str) -> dict[str, Any]:
        """A part of a choice."""
        return {"delta": parts} if self.is_chat else {"text": parts.get("content", "")}


_COMPLETION = _Form("prompt", "text_completion", "text_completion", "cmpl")
_CHAT = _Form("messages", "chat.completion", "chat.completion.chunk", "chatcmpl")


def model_routes(model: str) -> list[Route]:
    """The endpoints that name the model."""
    card = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "mvprune"}

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [card]})

    async def one_model(request: Request) -> Response:
        check_model(request.path_params["model"], model)
        return JSONResponse(card)

    return [Route("/v1/models", models), Route("/v1/models/{model:path}", one_model)]


def routes(writer: Writer, generations: Generations, limits: Limits, model: str) -> list[Route]:
    """The endpoints of one model that writes text."""

    async def completions(request: Request) -> Response:
        body = parse_object(await read_body(request, limits))
        fields = Fields(body, ("prompt", *_COMMON, *_OF_COMPLETIONS))
        prompts = _prompts(fields, limits)
        return await answer(
            request, _COMPLETION, fields, prompts, fields.integer("max_tokens", 1, limits.max_new_tokens)
        )

    async def chat(request: Request) -> Response:
        body = parse_object(await read_body(request, limits))
        if writer.why_no_chat:
            raise Refused(400, "", f"this model takes no chats: {writer.why_no_chat}; call /v1/completions")
        fields = Fields(body, ("messages", "max_completion_tokens", *_COMMON, *_OF_CHATS))
        named = [name for name in ("max_completion_tokens", "max_tokens") if fields.get(name) is not None]
        if len(named) > 1:
            raise fields.refusal("max_tokens", "must not be given with max_completion_tokens")
        most = fields.integer(named[0], 1, limits.max_new_tokens) if named else None
        return await answer(request, _CHAT, fields, [_messages(fields, limits)], most)

    async def answer(
        request: Request, form: _Form, fields: Fields, prompts: Sequence[str | Messages], most: int | None
    ) -> Response:
        check_model(fields.get("model"), model)
        _check_neutral(fields, _OF_CHATS if form.is_chat else _OF_COMPLETIONS)
        settings = _sampling(fields) | ({"max_new_tokens": most} if most else {})
        stop, seed = fields.texts("stop", MAX_STOPS), fields.integer("seed", 0, MAX_SEED)
        wanted = [Wanted(prompt, settings, seed, stop) for prompt in prompts]
        head = {"id": f"{form.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        if fields.flag("stream"):
            if len(wanted) > 1:
                raise fields.refusal("prompt", "must be one prompt where stream is true")
            failed = event(error_of(request, ModelFailed()))
            head["object"] = form.chunk
            return await streamed(request, _events(generations, wanted[0], form, head, _wants_usage(fields)), failed)
        if fields.get("stream_options") is not None:
            raise fields.refusal("stream_options", "must not be given where stream is false")
        texts = await unless_gone(request, _all(generations, wanted, form))
        choices = [_choice(number, form.text(text.text), _reason(text)) for number, text in enumerate(texts)]
        return JSONResponse(head | {"object": form.kind, "choices": choices, "usage": _usage(texts)})

    return [
        *model_routes(model),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ]


async def _all(generations: Generations, wanted: Sequence[Wanted], form: _Form) -> list[Written]:
    try:
        return [await generations.written(one) for one in wanted]
    except PromptRefused as refused:
        raise _refusal(refused, form) from refused


async def _events(
    generations: Generations, wanted: Wanted, form: _Form, head: Mapping[str, Any], has_usage: bool
) -> AsyncGenerator[str, None]:
    usage: dict[str, Any] = {"usage": None} if has_usage else {}

    def chunk(content: Mapping[str, Any], reason: str | None = None) -> str:
        return event({**head, "choices": [_choice(0, content, reason)], **usage})

    async with generations.started(wanted) as generation:
        try:
            async for piece in generation.pieces():
                if piece.tokens:
                    yield chunk(form.delta(content=piece.text))
                else:
                    yield ""
                    if form.is_chat:
                        yield chunk(form.delta(role="assistant", content=""))
        except PromptRefused as refused:
            raise _refusal(refused, form) from refused
    yield chunk(form.delta(), _reason(generation.written))
    if has_usage:
        yield event({**head, "choices": [], "usage": _usage([generation.written])})
    yield _DONE


def _choice(index: int, content: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": reason}


def _reason(written: Written) -> str:
    return "stop" if written.reason == "stop" else "length"  # OpenAI has no word for a limit of time


def _usage(texts: Sequence[Written]) -> dict[str, int]:
    read, wrote = sum(text.prompt_tokens for text in texts), sum(text.tokens for text in texts)
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _refusal(refused: PromptRefused, form: _Form) -> Refused:
    code, remedy = ("context_length_exceeded", "; shorten it") if refused.is_too_long else ("", "")
    return Refused(400, form.prompt, refused.message + remedy, code)


def check_model(given: object, model: str) -> None:
    """Refuses a request for another model."""
    if given != model:
        found = repr(given[:80]) if isinstance(given, str) else kind_of(given)
        raise Refused(404, "model", f"must be {model!r}, the model that is served, got {found}", "model_not_found")


def _check_neutral(fields: Fields, names: Sequence[str]) -> None:
    for name in names:
        value = fields.get(name)
        same = [one for one in _NEUTRAL[name] if value == one and isinstance(value, bool) == isinstance(one, bool)]
        if value is not None and not same:
            allowed = " or ".join(json.dumps(one) for one in _NEUTRAL[name])
            raise fields.refusal(name, f"is not supported: must be {allowed}, or left out")


def _sampling(fields: Fields) -> dict[str, Any]:
    temperature, top_p = fields.number("temperature", 0, 2), fields.number("top_p", 0, 1)
    if temperature == 0:
        return {"do_sample": False}
    if temperature is not None and temperature < MIN_TEMPERATURE:
        raise fields.refusal("temperature", f"must be 0 or from {MIN_TEMPERATURE} to 2")
    given = {"temperature": temperature, "top_p": top_p}
    settings = {name: value for name, value in given.items() if value is not None}
    return {"do_sample": True, **settings} if settings else {}


def _wants_usage(fields: Fields) -> bool:
    given = fields.get("stream_options")
    if given is not None and not isinstance(given, Mapping):
        raise fields.refusal("stream_options", "must be an object")
    return bool(Fields(given or {}, ("include_usage",), "stream_options").flag("include_usage"))


def _prompts(fields: Fields, limits: Limits) -> list[str]:
    given = fields.get("prompt")
    if not isinstance(given, list):
        return [check_text(given, "prompt", limits.max_characters)]
    if not 1 <= len(given) <= limits.max_batch:
        raise Refused(422, "prompt", f"must be a text or 1 to {limits.max_batch} texts, got {len(given):,}")
    return [check_text(one, f"prompt[{number}]", limits.max_characters) for number, one in enumerate(given)]


def _messages(fields: Fields, limits: Limits) -> Messages:
    given = fields.get("messages")
    if not isinstance(given, list) or not 1 <= len(given) <= _MAX_MESSAGES:
        raise fields.refusal("messages", f"must be a list of 1 to {_MAX_MESSAGES:,} messages")
    messages = [_message(one, f"messages[{number}]", limits) for number, one in enumerate(given)]
    if (characters := sum(len(one["content"]) for one in messages)) > limits.max_characters:
        raise Refused(413, "messages", f"must have at most {limits.max_characters:,} characters, got {characters:,}")
    return messages


def _message(given: object, place: str, limits: Limits) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise Refused(422, place, f"must be an object with role and content, got {kind_of(given)}")
    named = {name: value for name, value in given.items() if value is not None}
    fields = Fields(named, ("role", "content"), place)
    if fields.get("role") not in _ROLES:
        raise fields.refusal("role", f"must be one of {', '.join(_ROLES)}")
    content = fields.get("content")
    if isinstance(content, list):
        parts = [_part(one, f"{place}.content[{number}]") for number, one in enumerate(content)]
        content = "\n".join(parts)
    return {"role": str(fields.get("role")), "content": check_text(content, f"{place}.content", limits.max_characters)}


def _part(given: object, place: str) -> str:
    if not isinstance(given, Mapping) or given.get("type") != "text" or not isinstance(given.get("text"), str):
        raise Refused(422, place, 'must be {"type": "text", "text": …}: this model reads text only')
    return str(given["text"])
