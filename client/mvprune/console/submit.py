"""Submitting a job: a form made of the contract's own parameters, and the command and the job file that do the same."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from mvprune.client import display
from mvprune.client.given import command, job_file, parameters, text_of, value_of
from mvprune.client.inputs import local
from mvprune.client.models import JobRecord
from mvprune.common.exceptions import FieldViolation, InvalidArgument
from mvprune.console.visit import Visit
from mvprune.spec.lookup import parameter_of
from mvprune.spec.messages import create_request
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import PARAMETERS

_SENT = {"model": "model", "file": "data"}  # by unit: what may be sent for a parameter
_BOUND = {"start_from", "request_id"}  # of jobs that the server made of others


class Field(NamedTuple):
    """A field of the form.

    Attributes:
        words: that may be chosen; (): any text.
        text: what is typed or chosen.
        sends: "model" or "data": a folder or a file may be sent for it; "" for neither.
        is_long: whether it has several lines.
    """

    name: str
    help: str
    default: str
    words: tuple[str, ...]
    text: str
    sends: str
    is_long: bool
    problem: str


async def form(visit: Visit) -> Response:
    """The form, filled in with what another job was asked for if `from` names it."""
    source = visit.asked("from")
    values = parameters(await visit.calls.get(source)) if source else {}
    texts = {name: _typed(PARAMETERS[name], value) for name, value in values.items() if name not in _BOUND}
    return _page(visit, texts, values, source=source)


async def send(visit: Visit) -> Response:
    """Checks a job, or submits it."""
    texts = {name: visit.given(name) for name in PARAMETERS if visit.given(name)}
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, text in texts.items():
        try:
            values[name] = value_of(PARAMETERS[name], text)
        except ValueError as error:
            problems[name] = str(error)
            continue
        if local(name, values[name]):  # a path on the console's machine is none of the user's
            problems[name] = f"must be sent, or be server:/PATH, a name or a hub id, got {text[:100]!r}"
    is_check = visit.given("do") != "submit"
    if not problems:
        try:
            job = await _submit(visit, values, is_check=is_check)
        except InvalidArgument as refusal:
            problems = _by_parameter(refusal, values)
        else:
            if not is_check:
                return visit.go(visit.path("jobs", job.id))
            return _page(visit, texts, values, checked=job)
    return _page(visit, texts, values, problems)


async def _submit(visit: Visit, values: Mapping[str, Any], *, is_check: bool) -> JobRecord:
    """Raises InvalidArgument."""
    options: Any = {name: value for name, value in values.items() if name not in ("model", "density")}
    options |= {"validate_only": is_check, "request_id": visit.given("request_id")}
    parent = f"projects/{visit.project}"
    request = create_request(parent, values.get("model", ""), values.get("density"), options)
    return await visit.session.link.create(request)


def _page(
    visit: Visit,
    texts: Mapping[str, str],
    values: Mapping[str, Any],
    problems: Mapping[str, str] | None = None,
    *,
    checked: JobRecord | None = None,
    source: str = "",
) -> Response:
    problems = problems or {}
    common, rest = list[Field](), dict[str, list[Field]]()
    for one in PARAMETERS.values():
        if one.name in _BOUND:
            continue
        field = _field(one, texts.get(one.name, ""), problems.get(one.name, ""))
        (common if one.is_common else rest.setdefault(one.group, [])).append(field)
    said = dict(values) if values and not problems else {}
    return visit.page(
        "submit.html",
        status=400 if problems else 200,
        source=source,
        common=common,
        rest=rest,
        open_groups={group for group, fields in rest.items() if any(one.problem or one.text for one in fields)},
        others=[f"{name}: {text}" for name, text in problems.items() if name not in PARAMETERS],
        has_problems=bool(problems),
        request_id=visit.given("request_id") if problems or checked else secrets.token_hex(12),
        notes=[f"valid: {display.keeps(checked)}", *checked.notes, *display.plan(checked)] if checked else [],
        command=command(said) if said else "",
        job_file=job_file(said) if said else "",
    )


def _field(one: Parameter, text: str, problem: str) -> Field:
    rules = [one.help, *([str(one.bound)] if one.bound else [])]
    rules += [f"for {', '.join(one.methods)}"] if one.methods else []
    words = ("true", "false") if one.kind is Kind.FLAG else one.words
    return Field(
        name=one.name,
        help="; ".join(rules),
        default=one.default,
        words=words,
        text=text,
        sends=_SENT.get(one.unit, ""),
        is_long=one.kind is Kind.TEXTS,
        problem=problem,
    )


def _typed(one: Parameter, value: Any) -> str:
    """What is typed for a value."""
    if one.kind is Kind.TEXTS:
        return "\n".join(value)
    return value if isinstance(value, str) else text_of(one, value)


def _by_parameter(refusal: InvalidArgument, values: Mapping[str, Any]) -> dict[str, str]:
    """What the server says of each parameter."""
    found: dict[str, str] = {}
    for field, text in refusal.violations or [FieldViolation("job", str(refusal))]:
        known = parameter_of(field, values)
        name = known.name if known else field
        found[name] = "; ".join(filter(None, (found.get(name, ""), text)))
    return found
