"""Sweeps against servers that stop between any two writes: a stateful model on a clock of its own.

In each example hypothesis makes up sweeps and what happens: rounds of two sweep controllers, whole, write by write or
at the same time, commands of users, jobs that start, end and fail, crashes, faults of the database. The invariants are
checked after every write. In the end every sweep must end. MVPRUNE_MODEL_EXAMPLES: as in test_model.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing, closing
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.unit.service.model_gate import Fault
from tests.unit.service.test_model import empty

from mvprune.v1 import sweep_pb2
from mvprune_service.db.engine.database import Database

from .gym import BASE
from .model_sweeps import COMMANDS, OUTCOMES, PLANES, World

EXAMPLES = os.environ.get("MVPRUNE_MODEL_EXAMPLES")
_DEFAULT_EXAMPLES = {"sqlite": 8, "postgresql": 3}
_STEPS = 45

_numbers = st.integers(0, 7)
_DENSITIES = {"parameter": "density", "values": [0.1, 0.2, 0.3]}
_METHODS = {"parameter": "method", "values": ["movement", "magnitude"]}
_ROUNDS = {"parameter": "density", "values": [0.8]}
_SEEDS = {"parameter": "seed", "values": [0, 1]}
_GATE = {"metric": "eval/accuracy", "min": 0.7}


@st.composite
def sweeps(draw: Callable[[st.SearchStrategy[Any]], Any]) -> sweep_pb2.CreateSweepRequest:
    """A sweep with some of what it can be. Names are given again when their sweep is deleted."""
    teacher = draw(st.sampled_from(({}, {}, {"teacher": {"none": True}, "baseline": {"none": True}})))
    strategy = draw(
        st.sampled_from(
            (
                {"axes": [_DENSITIES]},
                {"axes": [_METHODS, _DENSITIES]},
                # by size: the results have no latency
                {"search": {"min_density": 0.05, "goal": "BYTES"}, "gates": [_GATE], "axes": [_METHODS]},
                {"tickets": {"controls": ["SHUFFLED", "RANDOM_MASK"]}, "axes": [_ROUNDS, _SEEDS]},
            )
        )
    )
    policy: dict[str, Any] = {"parallel": draw(st.integers(1, 4))}
    policy |= draw(st.sampled_from(({}, {}, {"max_failed": 0}, {"max_failed": 1, "on_failure": "STOP"})))
    policy |= draw(st.sampled_from(({}, {}, {}, {"max_runtime": "60s"})))
    policy["reuse"] = draw(st.booleans())
    base = {name: BASE[name] for name in ("model", "task")} if "tickets" in strategy else BASE | teacher
    sweep = {"spec": {"base": base} | strategy, "policy": policy}
    request = {"parent": "projects/p", "sweep_id": f"sweep-{draw(st.integers(0, 2))}", "sweep": sweep}
    return ParseDict(request, sweep_pb2.CreateSweepRequest())


_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "plane": st.integers(0, PLANES - 1),
    "which": _numbers,
    "choice": _numbers,
    "command": st.sampled_from(COMMANDS),
    "outcome": st.sampled_from(OUTCOMES),
    "request": sweeps(),
    "faults": st.just([]) | st.lists(st.sampled_from(Fault), max_size=3),
    "leave": st.booleans(),
    "deletes": st.booleans(),
}
# What can happen: methods of the world, how often, and with what.
_HAPPENINGS = {
    "create": (1, ("plane", "request", "faults")),
    "repeat": (1, ("plane", "which", "faults")),
    "step": (12, ("plane", "faults", "leave")),
    "both": (2, ()),
    "go_on": (3, ("which", "faults")),
    "crash": (2, ("plane",)),
    "command": (8, ("plane", "which", "command", "choice", "faults")),
    "child": (2, ("which", "deletes")),
    "work": (16, ("which", "outcome")),
    "pass_time": (1, ("which",)),
}


def _with(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries({field: _FIELDS[field] for field in _HAPPENINGS[name][1]}))


happenings = st.sampled_from([name for name, (often, _) in _HAPPENINGS.items() for _ in range(often)]).flatmap(_with)


@pytest.mark.slow
def test_no_point_is_lost_or_doubled_whatever_happens(
    new_database: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    url = new_database()
    kind = request.node.callspec.params["new_database"]

    @settings(
        max_examples=int(EXAMPLES or _DEFAULT_EXAMPLES[kind]),
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(sweeps(), min_size=1, max_size=2), st.lists(happenings, min_size=_STEPS, max_size=_STEPS))
    def example(requests: list[sweep_pb2.CreateSweepRequest], story: list[tuple[str, dict[str, Any]]]) -> None:
        empty(db.engine)
        asyncio.run(_tell(url, requests, story))

    with closing(Database(url)) as db:
        example()


async def _tell(
    url: str, requests: list[sweep_pb2.CreateSweepRequest], story: list[tuple[str, dict[str, Any]]]
) -> None:
    async with aclosing(World(url)) as world:
        for request in requests:
            await world.create(0, request, ())
        for name, values in story:
            note(f"{name} {values}")
            await getattr(world, name)(**values)
        await world.heal()
