"""What a job is asked for, parameter by parameter: values, and what people type for them."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mvprune.common.suggestions import must_be_one_of
from mvprune.common.units import exact_size, parse_duration, parse_size
from mvprune.sources.schemes import shown
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import PARAMETERS

if TYPE_CHECKING:
    from mvprune.client.models import JobRecord


def parameters(job: JobRecord) -> dict[str, Any]:
    """The parameters of a job that are set, as `Client.submit` takes them. What the server has chosen, such as the
    method, is set too."""
    return {name: value for name, one in PARAMETERS.items() if (value := _value(job, one)) is not None}


def text_of(parameter: Parameter, value: Any) -> str:
    """The value of a parameter for people, as a job file takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float) and parameter.kind is Kind.TIME and value.is_integer():
        return f"{value:.0f}s"
    if parameter.kind is Kind.SIZE:
        return exact_size(value)
    if isinstance(value, float | int):
        return f"{value:.15g}"
    return shown(str(value))


def value_of(parameter: Parameter, text: str) -> Any:
    """The value of a parameter that was typed, as `Client.submit` takes it. Of several texts each is a line; labels are
    KEY=VALUE, separated by commas. Raises ValueError with a sentence."""
    match parameter.kind:
        case Kind.FLAG:
            return _word(text, ("true", "false")) == "true"
        case Kind.WORD:
            return _word(text, parameter.words)
        case Kind.NUMBER:
            return _number(text)
        case Kind.WHOLE:
            if (whole := _number(text)).is_integer():
                return int(whole)
            raise ValueError(f"must be a whole number, got {text!r:.100}")
        case Kind.TIME:
            return parse_duration(text)
        case Kind.SIZE:
            return parse_size(text)
        case Kind.TEXTS:
            return list(filter(None, map(str.strip, text.splitlines())))
        case Kind.LABELS:
            pairs = [part.partition("=") for part in map(str.strip, text.split(",")) if part]
            if wrong := next((key for key, equals, _ in pairs if not (key and equals)), None):
                raise ValueError(f"must be KEY=VALUE, separated by commas, got {wrong!r:.100}")
            return {key.strip(): value.strip() for key, _, value in pairs}
    return text


def command(values: Mapping[str, Any]) -> str:
    """The command that submits a job with these parameters."""
    words = ["mvpctl", "submit"]
    for name, value in values.items():
        one = PARAMETERS[name]
        if one.kind is Kind.FLAG and not one.by_name:
            words += [one.flag] if value else []
            continue
        several = value if one.kind is Kind.TEXTS else [value]
        if one.kind is Kind.LABELS:
            several = [f"{key}={of}" for key, of in value.items()]
        for each in several:
            text = each if isinstance(each, str) else text_of(one, each)
            words += ["--set", f"{name}={text}"] if one.by_name else [one.flag, text]
    return shlex.join(words)


def job_file(values: Mapping[str, Any]) -> str:
    """The job file of a job with these parameters."""
    import yaml  # slow to import

    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def _word(text: str, words: Sequence[str]) -> str:
    if text not in words:
        raise ValueError(must_be_one_of(words, text))
    return text


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be a number, got {text!r:.100}")
    return value


def _value(job: JobRecord, parameter: Parameter) -> Any:
    """What one is set to; None: it is not."""
    spec = job.spec
    match parameter.name:
        case "method":
            return spec.method
        case "gates":
            from mvprune.spec.gates import gate_text  # most jobs have none

            return [gate_text(gate) for gate in job.policy.gates] or None
        case "teacher" | "baseline" as name:
            return _source(getattr(spec, name))
    if parameter.name in spec.method_options:
        return spec.method_options[parameter.name]
    return next((found for field in parameter.fields if (found := _at(job, field)) is not None), None)


def _source(of: Any) -> str | None:
    """A teacher or a baseline, as one text."""
    if of is None:
        return None
    if of.job:
        return f"job:{of.job.rpartition('/')[2]}"
    return getattr(of, "model", "") or next((word for word in ("train", "none") if getattr(of, word, False)), None)


def _at(job: JobRecord, field: str) -> Any:
    """The value at the path of a field; None: it is unset."""
    holder: Any = job
    *parents, last = field.split(".")
    for part in parents:
        if part != "resources":  # whose fields are those of the policy
            holder = getattr(holder, part, None)
    known = {one.name: str(one.type) for one in dataclasses.fields(holder)} if dataclasses.is_dataclass(holder) else {}
    if last not in known:
        return None
    value = getattr(holder, last)
    # Where unset is not None it is what the contract takes for unset: "", 0, false or nothing at all.
    return value if value or (value is not None and "None" in known[last]) else None
