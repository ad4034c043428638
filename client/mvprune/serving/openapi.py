"""What a server's endpoints are, as an OpenAPI document (GET /openapi.json) and as a page (GET /docs, no scripts)."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from mvprune.serving.batching import Field
from mvprune.serving.requests import BATCH_FIELD, JSON, Limits

_TEXT: dict[str, Any] = {"type": "string"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_NUMBER: dict[str, Any] = {"type": "number"}
_INTEGER: dict[str, Any] = {"type": "integer"}
_ANY: dict[str, Any] = {"type": "object"}
_TEXTS: dict[str, Any] = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_SECURITY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "pre{overflow:auto;padding:.6rem;border:1px solid #8884;border-radius:.4rem}code{font-size:.9em}"
    "h2{font-size:1.05rem;margin-top:2rem}"
)


class Described(NamedTuple):
    """An endpoint.

    Attributes:
        summary: a sentence.
        body: the properties of its request's body, in JSON schemas; {}: it has none.
        required: the names of those that must be there.
        example: a body.
        media: of its answer.
    """

    summary: str
    body: Mapping[str, Any] = {}
    required: Sequence[str] = ()
    example: Mapping[str, Any] = {}
    media: str = JSON


def _tensor(datatype: str, **more: Any) -> dict[str, Any]:
    properties = {"name": _TEXT, "shape": {"type": "array", "items": _INTEGER}, "datatype": {"enum": [datatype]}}
    return {"type": "object", "properties": properties | more, "required": [*properties, *more]}


_SAMPLING = {"temperature": _NUMBER, "top_p": _NUMBER, "seed": _INTEGER, "stop": _TEXTS, "stream": _FLAG}
_V2 = "/v2/models/{model}"
_ENDPOINTS: Mapping[str, Described] = {
    "/": Described("What the model is: task, density, metrics, runtime, fields of an input, limits."),
    "/docs": Described("This page.", media="text/html"),
    "/openapi.json": Described("This page as an OpenAPI document."),
    "/health": Described("Whether the model answers, and how many inputs wait; 503 where it has stopped."),
    "/live": Described("Whether the process runs; it should be started anew where this fails."),
    "/ready": Described("Whether requests should be sent here; 503 where the model has stopped."),
    "/metrics": Described("Requests, times, batches and what waits, for Prometheus.", media="text/plain"),
    "/rerank": Described(
        "The documents of a query, the best first.",
        {
            "query": _TEXT,
            "texts": {"type": "array", "items": _TEXT},
            "raw_scores": _FLAG,
            "return_text": _FLAG,
            "truncate": _FLAG,
        },
        ("query", "texts"),
        {"query": "what is a sparse model?", "texts": ["A model with few weights.", "A kind of tea."]},
    ),
    "/embed": Described(
        "The vectors of texts, as text-embeddings-inference gives them.",
        {"inputs": _TEXTS, "normalize": _FLAG, "truncate": _FLAG, "prompt_name": _TEXT, "dimensions": _INTEGER},
        ("inputs",),
        {"inputs": ["a text"]},
    ),
    "/v1/embeddings": Described(
        "The vectors of texts, as OpenAI's API gives them.",
        {
            "model": _TEXT,
            "input": _TEXTS,
            "encoding_format": {"enum": ["float", "base64"]},
            "dimensions": _INTEGER,
            "user": _TEXT,
        },
        ("model", "input"),
        {"model": "MODEL", "input": "a text"},
    ),
    "/generate": Described(
        "A text that the model writes; with `stream`, as server-sent events.",
        {"inputs": _TEXT, "parameters": _ANY, "stream": _FLAG},
        ("inputs",),
        {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20}},
    ),
    "/v1/completions": Described(
        "A text that the model writes, as OpenAI's API gives it.",
        {"model": _TEXT, "prompt": _TEXTS, "max_tokens": _INTEGER, **_SAMPLING},
        ("model", "prompt"),
        {"model": "MODEL", "prompt": "Once upon a time", "max_tokens": 20},
    ),
    "/v1/chat/completions": Described(
        "The answer to messages, as OpenAI's API gives it.",
        {"model": _TEXT, "messages": {"type": "array", "items": _ANY}, "max_tokens": _INTEGER, **_SAMPLING},
        ("model", "messages"),
        {"model": "MODEL", "messages": [{"role": "user", "content": "Hello"}]},
    ),
    "/v1/models": Described("The one model, for clients of OpenAI's API."),
    "/v1/models/{model}": Described("The same."),
    "/v2": Described("The server, in the Open Inference Protocol."),
    "/v2/health/live": Described("As /live."),
    "/v2/health/ready": Described("As /ready."),
    _V2: Described("The tensors of a request and of its answer."),
    f"{_V2}/ready": Described("As /ready, of one model."),
    f"{_V2}/infer": Described(
        "The answers to inputs, in tensors.",
        {
            "id": _TEXT,
            "inputs": {"type": "array", "items": _tensor("BYTES", data={"type": "array", "items": _TEXT})},
            "outputs": {"type": "array", "items": _ANY},
            "parameters": _ANY,
        },
        ("inputs",),
    ),
}
_VERSIONED = f"{_V2}/versions/{{version}}"  # the same endpoints


def routes(others: Sequence[Route], fields: Sequence[Field], limits: Limits, model: str) -> list[Route]:
    """The endpoints that describe themselves and `others`."""

    async def document(_: Request) -> JSONResponse:
        return JSONResponse(content)

    async def page(_: Request) -> Response:
        return HTMLResponse(_page(content), headers=_SECURITY)

    made = [Route("/openapi.json", document), Route("/docs", page)]
    content = _document([*others, *made], fields, limits, model)
    return made


def described(path: str, fields: Sequence[Field], limits: Limits) -> Described:
    """The endpoint at a path.

    Raises:
        KeyError: there is none.
    """
    path = path.replace(_VERSIONED, _V2)
    if path == "/predict":
        properties = {field.name: {"type": "string", "maxLength": limits.max_characters} for field in fields}
        inputs = {"type": "array", "maxItems": limits.max_batch, "items": _schema(properties, _required(fields))}
        example = {field.name: "a text" for field in fields if field.required}
        return Described(
            f"The answer to an input, or to several as `{BATCH_FIELD}`.",
            properties | {BATCH_FIELD: inputs},
            (),
            example,
        )
    if path == f"{_V2}/infer":
        tensors = [
            {"name": field.name, "shape": [1], "datatype": "BYTES", "data": ["a text"]}
            for field in fields
            if field.required
        ]
        return _ENDPOINTS[path]._replace(example={"inputs": tensors})
    return _ENDPOINTS[path]


def _required(fields: Sequence[Field]) -> list[str]:
    return [field.name for field in fields if field.required]


def _schema(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    made = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return made | ({"required": [*required]} if required else {})


def _document(others: Sequence[Route], fields: Sequence[Field], limits: Limits, model: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in others:
        path = route.path.replace(":path}", "}")
        one = described(path, fields, limits)
        (method,) = (route.methods or {"GET"}) - {"HEAD"}
        operation: dict[str, Any] = {
            "summary": one.summary,
            "operationId": f"{method.lower()}{path}".replace("/", "_").replace("{", "").replace("}", ""),
            "responses": {"200": {"description": "the answer", "content": {one.media: {}}}, "default": _ERROR},
        }
        if named := [part[1:-1] for part in path.split("/") if part.startswith("{")]:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in named
            ]
        if one.body:
            example = json.loads(json.dumps(one.example).replace('"MODEL"', json.dumps(model)))
            media = {"schema": _schema(one.body, one.required), "example": example}
            operation["requestBody"] = {"required": True, "content": {JSON: media}}
        paths.setdefault(path, {})[method.lower()] = operation
    info = {"title": f"mvpctl serve: {model}", "version": "1", "license": {"name": "Apache-2.0"}}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


_ERROR = {
    "description": "an error: the field that is wrong, if there is one, and the rule",
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "object", "properties": {"field": _TEXT, "message": _TEXT}}},
            }
        }
    },
}


def _page(content: Mapping[str, Any]) -> str:
    parts = []
    for path, methods in content["paths"].items():
        for method, one in methods.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(one['summary'])}</p>")
            if body := one.get("requestBody"):
                media = body["content"][JSON]
                example = html.escape(json.dumps(media["example"], ensure_ascii=False, indent=1))
                names = ", ".join(f"<code>{html.escape(name)}</code>" for name in media["schema"]["properties"])
                parts.append(f"<p>Fields: {names}.</p><pre>{example}</pre>")
    title = html.escape(content["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>Bodies are JSON, with the header <code>Content-Type: {JSON}</code>. "
        f'<a href="openapi.json">OpenAPI document</a></p>{"".join(parts)}</html>\n'
    )
