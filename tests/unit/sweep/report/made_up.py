"""Sweeps and points with made-up results, for tests of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mvprune.client.models import Accounting, Failure
from mvprune.client.sweep_models import (
    Axis,
    Objective,
    PointState,
    Recommendation,
    SweepCost,
    SweepCounts,
    SweepPoint,
    SweepPolicy,
    SweepRecord,
    SweepSpec,
    SweepState,
)
from mvprune.spec.gate import Gate
from mvprune.spec.models import Policy, Spec, Training

METHODS = ("movement", "soft_movement", "magnitude", "random")
DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.5)
GATE = Gate("delta/accuracy", min=-0.01)
# By how much each method loses at a density: movement and magnitude cross.
_LOSS = {
    "movement": (0.002, 0.35),
    "soft_movement": (0.0015, 0.3),
    "magnitude": (0.0003, 0.95),
    "random": (0.015, 0.2),
    "l0": (0.004, 0.45),
    "one_shot_magnitude": (0.003, 0.7),
}
_PRUNABLE, _OTHER = 400_000, 4_000_000


def base_spec(**changes: Any) -> Spec:
    """The spec that the jobs have in common."""
    values: dict[str, Any] = {
        **dict.fromkeys(Spec.__dataclass_fields__),
        **dict.fromkeys(("allow_density_miss", "trim_vocabulary", "trim_positions", "delta", "keep_fine_tuned"), False),
        "model": "bert-tiny",
        "model_revision": "",
        "task": "sst2",
        "target_density": 0.1,
        "pattern": "",
        "include": (),
        "exclude": (),
        "training": _training(),
        "seed": 0,
        "method": "soft_movement",
        "method_options": {},
    }
    spec = Spec(**values)
    return replace(spec, **changes)


def _policy() -> Policy:
    fields: dict[str, Any] = dict.fromkeys(Policy.__dataclass_fields__)
    return Policy(**{**fields, "priority": 0, "gates": ()})


def _training() -> Training:
    fields: dict[str, Any] = dict.fromkeys(Training.__dataclass_fields__)
    return Training(**{**fields, "epochs": 3.0, "best_metric": ""})


def accounting(density: float, *, other: int = _OTHER, prunable: int = _PRUNABLE) -> Accounting:
    """The counts of a model of which this much is kept."""
    kept, total = round(density * prunable), prunable + other
    return Accounting(
        target_density=density,
        density=kept / prunable,
        prunable_weights=prunable,
        kept_weights=kept,
        encoder_parameters=prunable + 3000,
        encoder_nonzero=kept + 3000,
        total_parameters=total,
        total_nonzero=kept + other,
        dense_bytes=4 * total,
        sparse_bytes=2 * other + 3 * kept,
        encoder_bytes=3 * kept,
        embedding_bytes=2 * other,
        dense_flops=2 * prunable * 128,
        sparse_flops=2 * kept * 128,
    )


def point(number: int, method: str = "movement", density: float = 0.1, seed: int = 0, **changes: Any) -> SweepPoint:
    """A point with a result.

    Args:
        changes: fields in place of the usual ones; `delta`: the difference from dense.
    """
    factor, power = _LOSS.get(method, (0.003, 0.5))
    noise = 0.004 * math.sin(12.9898 * number + 78.233 * seed)
    delta = changes.pop("delta", -factor * density ** (-power - 0.5) + noise)
    dense = 0.82 + 0.002 * seed
    counts = accounting(density)
    found = SweepPoint(
        number=number,
        cell={"method": method, "density": density, "seed": seed},
        state=PointState.SUCCEEDED,
        state_reason="",
        job=f"projects/p/jobs/quality-{number:04d}",
        reused=False,
        artifact=f"projects/p/artifacts/{number:064x}",
        metrics={
            "eval/accuracy": dense + delta,
            "dense/accuracy": dense,
            "delta/accuracy": delta,
            "latency_ms": 3 + 8 * density + noise,
            "latency_ratio": 11 / (3 + 8 * density),
            "dense_latency_ms": 11 + abs(noise),
            "dense_int8_latency_ms": 6 + abs(noise),
            "int8_latency_ratio": 6 / (3 + 8 * density),
        },
        primary_metric="accuracy",
        accounting=counts,
        total_bytes=counts.sparse_bytes + 20_000,
        failure=None,
        runtime=120.0,
        gpu_hours=0.03,
        progress=None,
        optimal=False,
        method=method,
        target_density=density,
        seed=seed,
        model="bert-tiny",
        task="sst2",
    )
    return replace(found, **changes)


def grid(
    methods: Sequence[str] = METHODS, densities: Sequence[float] = DENSITIES, seeds: Sequence[int] = (0, 1)
) -> list[SweepPoint]:
    """A point for each combination."""
    cells = [(method, density, seed) for method in methods for density in densities for seed in seeds]
    return [point(number, *cell) for number, cell in enumerate(cells, start=1)]


def small_model(number: int, model: str = "minilm-2", quality: float = 0.79, other: int = 1_500_000) -> SweepPoint:
    """A small dense model: a point of density 1 with a baseline of its own."""
    counts = accounting(1.0, other=other, prunable=200_000)
    metrics = {"eval/accuracy": quality, "dense/accuracy": quality, "delta/accuracy": 0.0, "latency_ms": 5.0}
    metrics |= {"dense_latency_ms": 5.0, "dense_int8_latency_ms": 2.5, "int8_latency_ratio": 0.5}
    found = point(number, density=1.0, cell={"model": model, "density": 1.0}, model=model, metrics=metrics)
    return replace(found, accounting=counts, total_bytes=counts.sparse_bytes)


def failed(number: int, reason: str = "NAN_LOSS", message: str = "the loss became NaN at step 412") -> SweepPoint:
    """A point whose job failed."""
    return point(
        number,
        state=PointState.FAILED,
        failure=Failure(reason, message),
        metrics={},
        accounting=None,
        artifact="",
        total_bytes=0,
    )


def sweep(points: Sequence[SweepPoint], **changes: Any) -> SweepRecord:
    """A sweep that has ended, of these points.

    Args:
        changes: fields in place of the usual ones, of the sweep and of its spec.
    """
    states = [one.state for one in points]
    counts: Mapping[str, int] = {state.lower(): states.count(state) for state in PointState if state != "UNSPECIFIED"}
    spec = SweepSpec(
        base=base_spec(),
        job_policy=_policy(),
        axes=(Axis("method", METHODS), Axis("density", DENSITIES), Axis("seed", (0, 1))),
        points=(),
        exclude=(),
        strategy="grid",
        strategy_options={},
        objectives=(Objective("eval/accuracy", "maximize"), Objective("bytes", "minimize")),
        gates=(GATE,),
        seeds="mean",
    )
    spec = replace(spec, **{name: changes.pop(name) for name in list(changes) if name in spec.__dataclass_fields__})
    record = SweepRecord(
        name="projects/p/sweeps/quality",
        uid="019c13c5",
        display_name="BERT-tiny on SST-2",
        spec=spec,
        policy=SweepPolicy(4, None, "let_run", None, None, True, False, False),
        labels={},
        state=SweepState.SUCCEEDED,
        state_reason="",
        counts=SweepCounts(total=len(points), **counts, reused=3, baselines=2),
        recommendation=Recommendation(
            True, 16, (15, 16), "soft_movement at density 0.1 loses 0.97 points of accuracy and has 8.14 MB."
        ),
        cost=SweepCost(4800.0, 1.25, 600.0, 4000.0),
        estimate=None,
        creator="local",
        create_time=datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
        end_time=datetime(2026, 1, 31, 13, 30, tzinfo=UTC),
        update_time=datetime(2026, 1, 31, 13, 30, tzinfo=UTC),
        etag="7",
        notes=(),
    )
    return replace(record, **changes)
