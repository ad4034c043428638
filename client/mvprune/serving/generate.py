"""POST /generate: one text, by settings with the names of transformers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mvprune.serving.batching import ModelFailed
from mvprune.serving.errors import error_of
from mvprune.serving.events import event, streamed, unless_gone
from mvprune.serving.fields import Fields, Refused, check_text, kind_of, parse_object
from mvprune.serving.generations import Generations
from mvprune.serving.requests import Limits, read_body
from mvprune.serving.writing import PromptRefused, Wanted, Writer, Written

MAX_STOPS = 4
MAX_SEED = 2**63 - 1
MIN_TEMPERATURE = 0.01
"""Logits that are divided by less may become infinite."""
_PROMPT = "inputs"
_SAMPLING = ("temperature", "top_p", "top_k")
_PARAMETERS = (
    *("max_new_tokens", "do_sample", *_SAMPLING, "num_beams", "repetition_penalty", "no_repeat_ngram_size"),
    *("length_penalty", "seed", "stop", "truncate"),
)


def routes(writer: Writer, generations: Generations, limits: Limits) -> list[Route]:
    """The endpoint."""

    async def generate(request: Request) -> Response:
        wanted, is_streamed = _wanted(
            parse_object(await read_body(request, limits)), limits, writer.why_no_sampled_beams
        )
        if is_streamed:
            failed = event(error_of(request, ModelFailed()), "error")
            return await streamed(request, _events(generations, wanted), failed)
        try:
            return JSONResponse(_answer(await unless_gone(request, generations.written(wanted))))
        except PromptRefused as refused:
            raise _refusal(refused) from refused

    return [Route("/generate", generate, methods=["POST"])]


async def _events(generations: Generations, wanted: Wanted) -> AsyncGenerator[str, None]:
    async with generations.started(wanted) as generation:
        try:
            async for piece in generation.pieces():
                yield event({"text": piece.text, "tokens": piece.tokens}) if piece.tokens else ""
        except PromptRefused as refused:
            raise _refusal(refused) from refused
    yield event(_answer(generation.written), "end")


def _answer(written: Written) -> dict[str, Any]:
    return {
        "generated_text": written.text,
        "finish_reason": written.reason,
        "prompt_tokens": written.prompt_tokens,
        "generated_tokens": written.tokens,
        "truncated_tokens": written.truncated_tokens,
    }


def _refusal(refused: PromptRefused) -> Refused:
    remedy = '; shorten it, or pass "truncate": true' if refused.is_too_long else ""
    return Refused(413 if refused.is_too_long else 422, _PROMPT, refused.message + remedy)


def _wanted(body: Mapping[str, object], limits: Limits, why_no_sampled_beams: str) -> tuple[Wanted, bool]:
    """What is asked for, and whether it is to be streamed."""
    fields = Fields(body, (_PROMPT, "parameters", "stream"))
    prompt = check_text(fields.get(_PROMPT), _PROMPT, limits.max_characters)
    given = fields.get("parameters")
    if given is not None and not isinstance(given, Mapping):
        raise Refused(422, "parameters", f"must be an object, got {kind_of(given)}")
    parameters = Fields(given or {}, _PARAMETERS, "parameters")
    settings = {
        "max_new_tokens": parameters.integer("max_new_tokens", 1, limits.max_new_tokens),
        "do_sample": parameters.flag("do_sample"),
        "temperature": parameters.number("temperature", MIN_TEMPERATURE, 100),
        "top_p": parameters.number("top_p", 0, 1),
        "top_k": parameters.integer("top_k", 0, 1_000_000),
        "num_beams": parameters.integer("num_beams", 1, 16),
        "repetition_penalty": parameters.number("repetition_penalty", 0.1, 10),
        "no_repeat_ngram_size": parameters.integer("no_repeat_ngram_size", 0, 1000),
        "length_penalty": parameters.number("length_penalty", -10, 10),
    }
    sampling = [name for name in _SAMPLING if settings[name] is not None]
    if sampling and settings["do_sample"] is False:
        raise parameters.refusal(sampling[0], "must not be given where do_sample is false")
    if sampling:
        settings["do_sample"] = True
    if why_no_sampled_beams and settings["do_sample"] and (settings["num_beams"] or 1) > 1:
        raise parameters.refusal("num_beams", f"must be 1 or left out where a text is sampled ({why_no_sampled_beams})")
    return Wanted(
        prompt,
        {name: value for name, value in settings.items() if value is not None},
        parameters.integer("seed", 0, MAX_SEED),
        parameters.texts("stop", MAX_STOPS),
        parameters.flag("truncate") or False,
    ), fields.flag("stream") or False
