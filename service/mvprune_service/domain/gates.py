"""Gates: bounds that a result must satisfy, and whether it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mvprune.spec.gate import gate_of, is_passed, size_ratio
from mvprune.v1 import job_pb2


def observations(manifest: Mapping[str, Any], manifest_bytes: int) -> dict[str, float]:
    """The values that gates can be about, by name. Counts that the manifest lacks are left out."""
    observed = {name: value for name, value in manifest["metrics"].items() if _is_number(value)}
    observed["bytes"] = manifest_bytes + sum(file["size_bytes"] for file in manifest["files"])
    counts = manifest.get("accounting", {})
    if "density" in counts:
        observed["density"] = counts["density"]
    return observed | size_ratio(counts, observed["bytes"])


def evaluate(gates: Iterable[job_pb2.Gate], observed: Mapping[str, float]) -> list[job_pb2.GateResult]:
    """The outcome of each gate, in their order."""
    return [_evaluate(gate, observed.get(gate.metric)) for gate in gates]


def failure(results: Iterable[job_pb2.GateResult]) -> str | None:
    """Why a job with these results fails: the gates with `fail_job` that it misses. None if it misses none."""
    missed = [describe(result) for result in results if result.gate.fail_job and not result.passed]
    return f"the result misses a gate: {'; '.join(missed)}" if missed else None


def outcome(results: Sequence[job_pb2.GateResult]) -> str:
    """3 of 4 passed; missed: eval/f1 is 0.7812, at least 0.8 was asked for"""
    missed = [describe(result) for result in results if not result.passed]
    passed = f"{len(results) - len(missed)} of {len(results)} passed"
    return f"{passed}; missed: {'; '.join(missed)}" if missed else passed


def describe(result: job_pb2.GateResult) -> str:
    """eval/f1 is 0.7812, at least 0.8 was asked for"""
    gate = result.gate
    asked = f"at least {_shown(gate.min)}" if gate.HasField("min") else f"at most {_shown(gate.max)}"
    observed = f"is {_shown(result.observed)}" if result.HasField("observed") else "is not known"
    return f"{gate.metric} {observed}, {asked} was asked for"


def _evaluate(gate: job_pb2.Gate, observed: float | None) -> job_pb2.GateResult:
    return job_pb2.GateResult(gate=gate, observed=observed, passed=is_passed(gate_of(gate), observed))


def _shown(number: float) -> str:
    return f"{number:.6g}" if abs(number) < 1e6 else f"{number:.0f}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
