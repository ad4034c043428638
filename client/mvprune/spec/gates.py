"""Gates as users write them: f1>=80, delta_f1>=-2, bytes<=10MB.

Quality is written in percent, as the literature does, where the contract has fractions; a perplexity has its own unit.
A name is that of a metric of the task, alone (the pruned model's), after delta_ (pruned minus dense) or after dense_.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from mvprune.common.exceptions import FieldViolation, InvalidArgument, bad_field
from mvprune.common.units import exact_size, parse_size
from mvprune.spec.gate import OF_THE_ARTIFACT, Gate, GateResult

_FORM = "METRIC>=NUMBER or METRIC<=NUMBER, such as f1>=80, delta_f1>=-2 or bytes<=10MB"
_GATE = re.compile(r"\s*([A-Za-z]\w*)\s*(>=|<=)\s*(\S+(?:\s+\S+)*)\s*", re.ASCII)
_KINDS = ("delta", "dense")


def gates_of(given: Sequence[str | Gate], *, strict: bool = False) -> list[Gate]:
    """Gates, those in notation read.

    Args:
        strict: a job that misses any of them FAILS.

    Raises:
        InvalidArgument: with a violation for each that cannot be read, and where `strict` is about none.
    """
    if isinstance(given, str):
        raise bad_field("job.policy.gates", f"must be a list, got {given!r}")
    gates, violations = [], []
    for index, one in enumerate(given):
        try:
            gate = _checked(one) if isinstance(one, Gate) else parse_gate(str(one))
            gates.append(replace(gate, fail_job=strict or gate.fail_job))
        except ValueError as error:
            violations.append(FieldViolation(f"job.policy.gates[{index}]", str(error)))
    if strict and not given:
        violations.append(FieldViolation("job.policy.gates", "must have at least one gate with strict_gates, got none"))
    if violations:
        raise InvalidArgument(violations=violations)
    return gates


def parse_gate(text: str) -> Gate:
    """f1>=80 -> Gate("eval/f1", min=0.8). Raises ValueError, with what is allowed."""
    found = _GATE.fullmatch(text)
    if found is None:
        raise ValueError(f"must be {_FORM}, got {text!r}")
    metric = metric_of(found[1])
    bound = float(parse_size(found[3])) if metric == "bytes" else _bound(metric, found[3], text)
    if found[2] == ">=":
        return Gate(metric, min=bound)
    return Gate(metric, max=bound)


def gate_text(gate: Gate) -> str:
    """Gate("eval/f1", min=0.8) -> f1>=80"""
    kind, _, name = gate.metric.rpartition("/")
    sign, bound = (">=", gate.min) if gate.min is not None else ("<=", gate.max or 0.0)
    return f"{f'{kind}_' if kind in _KINDS else ''}{name}{sign}{_shown(gate.metric, bound)}"


def observed_text(result: GateResult) -> str:
    """The observed value, in the unit of `gate_text`; "" if nothing was observed."""
    metric, value = result.gate.metric, result.observed
    if value is None:
        return ""
    if metric == "bytes":
        return f"{value:,.0f} B"
    return f"{100 * value if is_percent(metric) else value:.6g}"


def _checked(gate: Gate) -> Gate:
    if (gate.min is None) == (gate.max is None):
        raise ValueError(f"must have one of min and max, got {gate}")
    return gate


def metric_of(name: str) -> str:
    """The contract's name of a metric as users write it: delta_f1 -> delta/f1."""
    kind, _, rest = name.partition("_")
    if name in OF_THE_ARTIFACT:
        return name
    return f"{kind}/{rest}" if kind in _KINDS else f"eval/{name}"


def _bound(metric: str, written: str, text: str) -> float:
    try:
        value = Decimal(written)
    except InvalidOperation:
        value = Decimal("nan")
    if not math.isfinite(value):
        raise ValueError(f"must be {_FORM}, got {text!r}")
    if metric == "density" and not 0 <= value <= 1:
        raise ValueError(f"must be a fraction from 0 to 1, got {text!r}; 0.03 is 3 %")
    if not is_percent(metric):
        return float(value)
    if 0 < value < 1 and not metric.startswith("delta/"):
        raise ValueError(f"must be in percent, got {text!r}; write {float(100 * value):g}")
    if abs(value) > 100:
        raise ValueError(f"must be from -100 to 100 percent, got {text!r}")
    return float(value / 100)  # as decimals, so that 2.9 becomes what 29 / 1000 is


def _shown(metric: str, bound: float) -> str:
    if metric == "bytes":
        return exact_size(round(bound))
    number = Decimal(repr(bound)) * (100 if is_percent(metric) else 1)
    return f"{number.normalize():f}"


def is_percent(metric: str) -> bool:
    """Whether people write this metric of the contract (eval/NAME, delta/NAME, dense/NAME) in percent."""
    from mvprune.data.tasks import LOSSES  # late, so that clients without gates start without the readers of data

    return "/" in metric and metric.partition("/")[2] not in LOSSES
