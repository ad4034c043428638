"""POST /rerank: the documents of a query by their scores, in the form of Hugging Face's text-embeddings-inference."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mvprune.serving.batching import Batcher
from mvprune.serving.events import unless_gone
from mvprune.serving.fields import Fields, Refused, check_text, kind_of, parse_object
from mvprune.serving.requests import Limits, read_body

FIELDS = ("query", "document")
"""The parts of an input of a model that reranks."""
_NAMES = ("query", "texts", "raw_scores", "return_text", "truncate")


def routes(batcher: Batcher, limits: Limits) -> list[Route]:
    """The endpoint."""

    async def rerank(request: Request) -> JSONResponse:
        fields = Fields(parse_object(await read_body(request, limits)), _NAMES)
        query = check_text(fields.get("query"), "query", limits.max_characters)
        texts = _texts(fields, limits)
        raw, with_text = fields.flag("raw_scores"), fields.flag("return_text")
        if fields.flag("truncate") is False:
            raise fields.refusal("truncate", "must be true or left out: long texts are cut")
        inputs = [dict(zip(FIELDS, (query, text), strict=True)) for text in texts]
        answers = await unless_gone(request, batcher.answer(inputs))
        found: list[dict[str, Any]] = [
            {"index": index, "score": answer["logit" if raw else "score"], **({"text": text} if with_text else {})}
            for index, (text, answer) in enumerate(zip(texts, answers, strict=True))
        ]
        return JSONResponse(sorted(found, key=lambda one: -one["score"]))

    return [Route("/rerank", rerank, methods=["POST"])]


def _texts(fields: Fields, limits: Limits) -> list[str]:
    given = fields.get("texts")
    if not isinstance(given, list) or not given:
        found = "an empty list" if given == [] else kind_of(given)
        raise Refused(422, "texts", f"must be a list of 1 to {limits.max_waiting} texts, got {found}")
    if len(given) > limits.max_waiting:
        raise Refused(413, "texts", f"must have at most {limits.max_waiting} texts, got {len(given):,}")
    return [check_text(text, f"texts[{number}]", limits.max_characters) for number, text in enumerate(given)]
