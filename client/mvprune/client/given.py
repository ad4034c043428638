"""What a job was asked for, parameter by parameter."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from mvprune.common.units import exact_size
from mvprune.sources.schemes import shown
from mvprune.spec.parameter import Kind, Parameter, written
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
        return written(value, "")
    return shown(str(value))


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
