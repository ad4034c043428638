"""The Open Inference Protocol, version 2, over HTTP with JSON: what KServe, Triton and their clients speak.

An input has one tensor of BYTES for each field, of shape [inputs]. An output has a tensor for each part of the answers:
numbers as FP64 or INT64, texts as BYTES, numbers by class as FP64 of shape [inputs, classes], whose names are in its
`parameters`; other lists, such as words with their tags, as the text of their JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.metadata import version as installed
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mvprune.serving.batching import Answer, Field, Input
from mvprune.serving.events import unless_gone
from mvprune.serving.fields import Fields, Refused, check_text, kind_of, parse_object
from mvprune.serving.requests import Limits, read_body

_VERSION = "1"  # of the model: an artifact does not change
_MAX_TENSORS = 16
_MODEL = "/v2/models/{model:path}"  # a name may have slashes

Answering = Callable[[Sequence[Input]], Coroutine[Any, Any, list[Answer]]]


def routes(
    answer: Answering, fields: Sequence[Field], limits: Limits, model: str, is_ready: Callable[[], bool]
) -> list[Route]:
    """The endpoints of one model.

    Args:
        answer: the answers to inputs.
        fields: the parts of an input.
        limits: of requests.
        model: its name.
        is_ready: whether it answers.
    """

    outputs: list[dict[str, Any]] = []

    def check(request: Request) -> None:
        given, version = request.path_params["model"], request.path_params.get("version", _VERSION)
        if given != model or version != _VERSION:
            raise Refused(404, "model", f"must be {model} in version {_VERSION}, got {given} in version {version}")

    async def server(_: Request) -> JSONResponse:
        return JSONResponse({"name": "mvprune", "version": installed("mvprune"), "extensions": []})

    async def live(_: Request) -> JSONResponse:
        return JSONResponse({"live": True})

    async def ready(request: Request) -> JSONResponse:
        if "model" in request.path_params:
            check(request)
        return JSONResponse({"ready": is_ready()}, 200 if is_ready() else 503)

    async def metadata(request: Request) -> JSONResponse:
        check(request)
        if not outputs:  # known from an answer
            sample = await answer([{field.name: "a" for field in fields if field.required}])
            outputs.extend(
                {"name": one["name"], "datatype": one["datatype"], "shape": [-1, *one["shape"][1:]]}
                for one in _tensors(sample)
            )
        inputs = [{"name": field.name, "datatype": "BYTES", "shape": [-1]} for field in fields]
        named = {"name": model, "versions": [_VERSION], "platform": "mvprune"}
        return JSONResponse(named | {"inputs": inputs, "outputs": outputs})

    async def infer(request: Request) -> JSONResponse:
        check(request)
        body = Fields(parse_object(await read_body(request, limits)), ("id", "inputs", "outputs", "parameters"))
        inputs, wanted = _inputs(body.get("inputs"), fields, limits), _wanted(body.get("outputs"))
        found = _tensors(await unless_gone(request, answer(inputs)))
        names = [one["name"] for one in found]
        for place, name in wanted.items():
            if name not in names:
                raise Refused(422, place, f"must be one of {', '.join(names)}, got {name!r:.80}")
        kept = [one for one in found if not wanted or one["name"] in wanted.values()]
        identity = body.get("id")
        named = {"model_name": model, "model_version": _VERSION} | ({} if identity is None else {"id": identity})
        return JSONResponse(named | {"outputs": kept})

    # The first that matches answers: what is below a model's path comes before it.
    of_model = [("/infer", infer, "POST"), ("/ready", ready, "GET"), ("", metadata, "GET")]
    return [
        Route("/v2", server),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        *(
            Route(_MODEL + version + ending, function, methods=[method])
            for version in ("/versions/{version}", "")
            for ending, function, method in of_model
        ),
    ]


def _inputs(given: object, fields: Sequence[Field], limits: Limits) -> list[Input]:
    """The inputs in the tensors of a request."""
    if not isinstance(given, list) or not 1 <= len(given) <= _MAX_TENSORS:
        raise Refused(422, "inputs", f"must be a list of 1 to {_MAX_TENSORS} tensors, got {kind_of(given)}")
    names = [field.name for field in fields]
    columns: dict[str, list[str]] = {}
    for number, one in enumerate(given):
        place = f"inputs[{number}]"
        if not isinstance(one, Mapping):
            raise Refused(422, place, f"must be an object, got {kind_of(one)}")
        tensor = Fields(one, ("name", "shape", "datatype", "data", "parameters"), place)
        name, data = tensor.get("name"), tensor.get("data")
        if name not in names or name in columns:
            raise tensor.refusal("name", f"must be one of {', '.join(names)}, each once")
        if tensor.get("datatype") != "BYTES":
            raise tensor.refusal("datatype", "must be BYTES: the model reads texts")
        flat = data if isinstance(data, list) else [data]
        if len(flat) > limits.max_batch:
            raise Refused(413, f"{place}.data", f"must have at most {limits.max_batch} texts, got {len(flat):,}")
        shape = tensor.get("shape")
        if not flat or shape not in ([len(flat)], [len(flat), 1]):
            raise tensor.refusal("shape", f"must be [{len(flat)}], the number of texts in data, of which there is one")
        columns[str(name)] = [
            check_text(text, f"{place}.data[{row}]", limits.max_characters) for row, text in enumerate(flat)
        ]
    missing = [field.name for field in fields if field.required and field.name not in columns]
    if missing or len({len(column) for column in columns.values()}) > 1:
        rule = "must have as many texts for each of the fields " + ", ".join(columns.keys() | {*missing})
        raise Refused(422, "inputs", f"{rule}, got {', '.join(f'{len(c)} of {n}' for n, c in columns.items())}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _wanted(given: object) -> dict[str, str]:
    """The names of the outputs that are asked for, by their places in the request; {}: all."""
    if given is None:
        return {}
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise Refused(422, "outputs", f"must be a list of objects with a name, got {kind_of(given)}")
    return {f"outputs[{number}].name": str(one.get("name")) for number, one in enumerate(given)}


def _tensors(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The parts of answers, each as a tensor."""
    return [_tensor(name, [answer.get(name) for answer in answers]) for name in answers[0]]


def _tensor(name: str, values: Sequence[Any]) -> dict[str, Any]:
    first = next((value for value in values if value is not None), "")
    if isinstance(first, dict) and all(isinstance(number, float) for number in first.values()):
        data = [number for value in values for number in value.values()]
        shape = [len(values), len(first)]
        return {"name": name, "datatype": "FP64", "shape": shape, "data": data, "parameters": {"labels": [*first]}}
    if isinstance(first, list) and first and isinstance(first[0], float):
        data = [number for value in values for number in value]
        return {"name": name, "datatype": "FP64", "shape": [len(values), len(first)], "data": data}
    if isinstance(first, int | float):
        datatype = "FP64" if isinstance(first, float) else "INT64"
        data = [0 if value is None else value for value in values]  # no answer in the text: it has no score
        return {"name": name, "datatype": datatype, "shape": [len(values)], "data": data}
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    return {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": texts}
