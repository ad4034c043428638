"""Endpoints of a model of vectors: /v1/embeddings as OpenAI's API has it, /embed as text-embeddings-inference (TEI)."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mvprune.serving.batching import Answer, Batcher
from mvprune.serving.events import unless_gone
from mvprune.serving.fields import Fields, Refused, check_text, kind_of, parse_object
from mvprune.serving.openai import check_model, model_routes
from mvprune.serving.requests import Limits, read_body

MAX_TEXTS = 2048
"""Texts in a request, as in OpenAI's API. They are computed as so many requests of `Limits.max_batch` texts."""
_FORMATS = ("float", "base64")


def routes(batcher: Batcher, limits: Limits, model: str, width: int) -> list[Route]:
    """The endpoints of one model, whose vectors have `width` numbers."""

    async def vectors(request: Request, texts: Sequence[str], prompt_name: str | None) -> list[Answer]:
        named = {} if prompt_name is None else {"prompt_name": prompt_name}
        answers: list[Answer] = []
        for start in range(0, len(texts), limits.max_batch):
            inputs = [{"text": text} | named for text in texts[start : start + limits.max_batch]]
            answers += await unless_gone(request, batcher.answer(inputs))
        return answers

    async def embeddings(request: Request) -> Response:
        body = parse_object(await read_body(request, limits))
        fields = Fields(body, ("model", "input", "encoding_format", "dimensions", "user"))
        check_model(fields.get("model"), model)
        form = fields.get("encoding_format") or "float"
        if form not in _FORMATS:
            raise fields.refusal("encoding_format", f"must be {' or '.join(_FORMATS)}")
        texts, dimensions = _texts(body, "input", limits), fields.integer("dimensions", 1, width)
        answers = await vectors(request, texts, None)
        data = [
            {"object": "embedding", "index": number, "embedding": _written(_cut(one["embedding"], dimensions), form)}
            for number, one in enumerate(answers)
        ]
        tokens = sum(one["tokens"] for one in answers)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": model, "usage": usage})

    async def embed(request: Request) -> Response:
        body = parse_object(await read_body(request, limits))
        fields = Fields(body, ("inputs", "normalize", "truncate", "prompt_name", "dimensions"))
        if fields.flag("truncate") is False:
            raise fields.refusal("truncate", "must be true, or left out: texts that are too long are cut")
        prompt_name = fields.get("prompt_name")
        if prompt_name is not None and not isinstance(prompt_name, str):
            raise fields.refusal("prompt_name", "must be the name of a prompt")
        texts, dimensions = _texts(body, "inputs", limits), fields.integer("dimensions", 1, width)
        answers = await vectors(request, texts, prompt_name)
        found = [one["embedding"][:dimensions] for one in answers]
        return JSONResponse([*map(_normalized, found)] if fields.flag("normalize") is not False else found)

    return [
        *model_routes(model),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/embed", embed, methods=["POST"]),
    ]


def _texts(body: Mapping[str, object], name: str, limits: Limits) -> list[str]:
    """A text, or a list of texts."""
    given = body.get(name)
    if not isinstance(given, list):
        return [check_text(given, name, limits.max_characters)]
    if not 1 <= len(given) <= MAX_TEXTS:
        raise Refused(422, name, f"must be a text or 1 to {MAX_TEXTS:,} texts, got {len(given):,}")
    for number, one in enumerate(given):
        if not isinstance(one, str):
            raise Refused(
                422, f"{name}[{number}]", f"must be a text; numbers of tokens are not read, got {kind_of(one)}"
            )
    return [check_text(one, f"{name}[{number}]", limits.max_characters) for number, one in enumerate(given)]


def _cut(vector: Sequence[float], dimensions: int | None) -> Sequence[float]:
    """The first numbers of a vector, of length 1 as OpenAI's, or all of it as it is."""
    return vector if dimensions is None else _normalized(vector[:dimensions])


def _normalized(vector: Sequence[float]) -> list[float]:
    length = math.hypot(*vector) or 1.0
    return [number / length for number in vector]


def _written(vector: Sequence[float], form: object) -> Any:
    """The numbers, or the bytes of their fp32 values, little-endian, in base64."""
    if form != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
