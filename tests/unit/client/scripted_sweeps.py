"""Messages about sweeps for scripted servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf import json_format

from mvprune.v1 import sweep_pb2

from .scripted_server import ACCOUNTING, NAME, always

SWEEP = "projects/default/sweeps/s1"
PASSES = {"passed": True, "point": 2, "points": [2], "text": "the smallest density that passes is 5.0 %"}
MISSES = {"passed": False, "point": 1, "points": [1], "text": "movement at 3.0 % misses delta_accuracy>=-1 by 1.5"}


def sweep(state: str = "ACTIVE", **fields: Any) -> sweep_pb2.Sweep:
    """A sweep message; `fields` as in JSON."""
    values = {
        "name": SWEEP,
        "uid": "u1",
        "state": state,
        "etag": "3",
        "createTime": "2026-01-31T12:00:00Z",
        "spec": {
            "base": {"model": "bert-base-uncased", "task": "sst2"},
            "axes": [
                {"parameter": "density", "values": [0.03, 0.05]},
                {"parameter": "seed", "values": [0, 1]},
            ],
            "grid": {},
            "objectives": [
                {"metric": "eval/accuracy", "direction": "MAXIMIZE"},
                {"metric": "bytes", "direction": "MINIMIZE"},
            ],
            "gates": [{"metric": "delta/accuracy", "min": -0.01}],
        },
        "policy": {"parallel": 4},
        "counts": {"total": 4, "succeeded": 2, "running": 1, "pending": 1, "baselines": 1},
        "cost": {"runtime": "7200s", "gpuHours": 2.0, "baselineRuntime": "1800s", "savedRuntime": "5400s"},
        **fields,
    }
    return json_format.ParseDict(values, sweep_pb2.Sweep())


def point(number: int, state: str = "SUCCEEDED", **fields: Any) -> sweep_pb2.SweepPoint:
    """A point message; one that has SUCCEEDED has a result."""
    values: dict[str, Any] = {
        "number": number,
        "state": state,
        "cell": {"density": 0.03, "seed": number},
        "method": "movement",
        "targetDensity": 0.03,
        "seed": number,
        "model": "bert-base-uncased",
        "task": "sst2",
        "job": f"{NAME}-{number}",
        "primaryMetric": "accuracy",
    }
    if state == "SUCCEEDED":
        values |= {
            "metrics": {"eval/accuracy": 0.875, "dense/accuracy": 0.9, "delta/accuracy": -0.025},
            "totalBytes": 54_750_000,
            "runtime": "600s",
        }
    message = json_format.ParseDict({**values, **fields}, sweep_pb2.SweepPoint())
    if state == "SUCCEEDED":
        message.accounting.CopyFrom(ACCOUNTING)
    return message


def watch(*sweeps: sweep_pb2.Sweep) -> Any:
    """Answers WatchSweep with these; the last one is done."""

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for number, one in enumerate(sweeps, start=1):
            yield sweep_pb2.WatchSweepResponse(sweep=one, done=number == len(sweeps))

    return answer


def points(*messages: sweep_pb2.SweepPoint) -> Callable[[Any, Any], Any]:
    """Answers ListSweepPoints, two a page."""

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        shown = [one for one in messages if one.optimal or not request.optimal_only]
        shown = [one for one in shown if one.number in request.numbers or not request.numbers]
        start = int(request.page_token or 0)
        following = str(start + 2) if start + 2 < len(shown) else ""
        return sweep_pb2.ListSweepPointsResponse(points=shown[start : start + 2], next_page_token=following)

    return answer


def created(request: Any, context: grpc.ServicerContext) -> sweep_pb2.Sweep:
    """Answers CreateSweep with what was asked for."""
    answer = sweep_pb2.Sweep()
    answer.CopyFrom(request.sweep)
    answer.name, answer.state, answer.counts.total = SWEEP, sweep_pb2.Sweep.ACTIVE, 4
    return answer


__all__ = ["MISSES", "PASSES", "SWEEP", "always", "created", "point", "points", "sweep", "watch"]
