"""The description of the API for tools, in the form of OpenAPI 3.1, from the contract's descriptors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

import mvprune
from mvprune.spec.annotations import annotation
from mvprune_service.api.access.rules import RULES, Caller
from mvprune_service.api.rest.routes import ROUTES, Route

_F = FieldDescriptor
_KINDS = {
    _F.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    _F.CPPTYPE_UINT32: {"type": "integer", "format": "int32"},
    _F.CPPTYPE_INT64: {"type": "string", "format": "int64"},
    _F.CPPTYPE_UINT64: {"type": "string", "format": "int64"},
    _F.CPPTYPE_DOUBLE: {"type": "number", "format": "double"},
    _F.CPPTYPE_FLOAT: {"type": "number", "format": "float"},
    _F.CPPTYPE_BOOL: {"type": "boolean"},
}
_TEXT, _BASE64 = {"type": "string"}, {"type": "string", "contentEncoding": "base64"}
_KNOWN = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d+)?s$"},
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}


def document(methods: Mapping[str, MethodDescriptor]) -> bytes:
    """The description of the routes of these RPCs, in JSON."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        if route.rpc in methods:
            place = paths.setdefault(_path(route), {})
            place[route.method.lower()] = _operation(route, methods[route.rpc], schemas)
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "mvprune", "version": mvprune.__version__},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return json.dumps(whole, ensure_ascii=False).encode()


def _path(route: Route) -> str:
    path = route.template
    for name, pattern in route.fields.items():
        path = path.replace(f"{{{name}={pattern}}}", _filled(name, pattern))
    return path


def _filled(name: str, pattern: str) -> str:
    """{parent=projects/*} has a parameter for each part that is free: projects/{project}."""
    parts = pattern.split("/")
    if len(parts) == 1:
        return f"{{{name}}}"
    if parts[1:3] == ["*", "*"]:
        parts = [parts[0], "*", "{collection}", "{id}"]
    return "/".join(f"{{{parts[at - 1].removesuffix('s')}}}" if part == "*" else part for at, part in enumerate(parts))


def _operation(route: Route, method: MethodDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    request, response = method.input_type, method.output_type
    path = _path(route)
    parameters = [
        {"name": part[: part.index("}")], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in path.split("{")[1:]
    ]
    operation: dict[str, Any] = {"operationId": method.name, "tags": [method.containing_service.name]}
    if route.method in ("GET", "DELETE"):
        parameters += [
            {"name": field.json_name, "in": "query", "schema": _field(field, schemas), **_described(field)}
            for field in request.fields
            if field.name not in route.fields
        ]
    elif method.client_streaming:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": binary}
    else:
        operation["requestBody"] = {"content": {"application/json": {"schema": _message(request, schemas)}}}
    kind = "application/x-ndjson" if method.server_streaming else "application/json"
    answer = {"description": response.name, "content": {kind: {"schema": _message(response, schemas)}}}
    failure = {"description": "An error", "content": {"application/json": {"schema": _ref("Error")}}}
    operation |= {"parameters": parameters, "responses": {"200": answer, "default": failure}}
    if RULES[route.rpc].caller is not Caller.NOTHING:
        operation["security"] = [{"token": []}]
    return operation


def _message(descriptor: Descriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if descriptor.full_name in _KNOWN:
        return _KNOWN[descriptor.full_name]
    name = descriptor.full_name.removeprefix("mvprune.v1.")
    if name not in schemas:
        schemas[name] = {"type": "object"}  # first: a message may have itself in it
        properties = {field.json_name: _field(field, schemas) | _described(field) for field in descriptor.fields}
        schemas[name]["properties"] = properties
    return _ref(name)


def _field(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _one(field.message_type.fields_by_name["value"], schemas)}
    one = _one(field, schemas)
    return {"type": "array", "items": one} if field.is_repeated else one


def _one(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        return _message(field.message_type, schemas)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values if value.number]}
    return _KINDS.get(field.cpp_type, _BASE64 if field.type == _F.TYPE_BYTES else _TEXT)


def _described(field: FieldDescriptor) -> dict[str, str]:
    note = annotation(field)
    return {"description": note.help} if note.help else {}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
