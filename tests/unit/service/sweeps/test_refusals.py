"""Sweeps that cannot be right: each is refused with the field, the value and the remedy, and nothing is stored."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from sqlalchemy import func, select
from tests.unit.service.conftest import ScriptedExecutor

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.sweeps import POINTS, SWEEP_EVENTS, SWEEP_REQUESTS, SWEEPS

from .gym import NAME, Gym
from .refused_sweeps import DENSITY, REFUSED, SEARCH

# Older versions of protobuf take no dict for a Struct in a list.
POINT = Struct(fields={"density": Value(number_value=0.1)})


@pytest.fixture
def gym(db: Database, executor: ScriptedExecutor) -> Gym:
    return Gym(db, executor)


async def stored(gym: Gym) -> int:
    """Rows of sweeps, of any kind."""
    tables = (SWEEPS, POINTS, SWEEP_EVENTS, SWEEP_REQUESTS)
    counts = [select(func.count()).select_from(table) for table in tables]
    return sum(await gym.db.read(lambda conn: [conn.execute(count).scalar_one() for count in counts]))


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_right_is_refused_at_its_place(gym: Gym, case: str) -> None:
    given, expected = REFUSED[case]
    found = await gym.refused(**{"request_id": "r"} | given)
    for field, part in expected.items():
        assert part in found.get(field, ""), found
    assert found.keys() == expected.keys()
    assert await stored(gym) == 0
    assert await gym.refused(**{"request_id": "r", "validate_only": True} | given) == found


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_a_number_that_json_does_not_have_is_a_bad_value(gym: Gym, number: float) -> None:
    nested = Value()
    nested.list_value.values.add(number_value=number)
    spec = sweep_pb2.SweepSpec(
        base=job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", movement={}),
        axes=[sweep_pb2.Axis(parameter="density", values=[Value(number_value=number), nested])],
        points=[Struct(fields={"density": Value(number_value=number)})],
        exclude=[Struct(fields={"density": Value(number_value=number)})],
    )
    request = sweep_pb2.CreateSweepRequest(parent="projects/p", sweep=sweep_pb2.Sweep(spec=spec))
    with pytest.raises(ApiError) as refused:
        await gym.servicer.CreateSweep(request, None)
    assert dict(refused.value.violations) == {
        "sweep.spec.axes[0].values[0]": f"must be a number, got {number}",
        "sweep.spec.axes[0].values[1]": f"must be a number, got [{number}]",
        "sweep.spec.points[0].density": f"must be a number, got {number}",
        "sweep.spec.exclude[0].density": f"must be a number, got {number}",
    }


async def test_what_is_no_change_of_a_policy_is_refused(gym: Gym) -> None:
    await gym.create(axes=[DENSITY], policy={"parallel": 2})

    async def refused(mask: list[str], **policy: Any) -> dict[str, str]:
        request = sweep_pb2.UpdateSweepPolicyRequest(name=NAME, policy=policy, update_mask={"paths": mask})
        with pytest.raises(ApiError) as error:
            await gym.servicer.UpdateSweepPolicy(request, None)
        return dict(error.value.violations)

    before = await gym.get()
    assert "must be a field of SweepPolicy: parallel, max_failed" in (await refused(["x"]))["update_mask.paths[0]"]
    assert (await refused(["parallel", "a.b"])).keys() == {"update_mask.paths[1]"}
    assert await refused([], parallel=-3) == {"policy.parallel": "must be from 1 to 10,000, got -3"}
    assert (await refused([], own_baselines=True)).keys() == {"policy.own_baselines"}
    assert (await refused(["early_stop"], early_stop=True)).keys() == {"policy.early_stop"}
    assert await gym.get() == before


async def test_what_is_no_extension_is_refused(gym: Gym) -> None:
    await gym.create(axes=[DENSITY])

    async def refused(**given: Any) -> dict[str, str]:
        request = ParseDict({"name": NAME} | given, sweep_pb2.ExtendSweepRequest())
        with pytest.raises(ApiError) as error:
            await gym.servicer.ExtendSweep(request, None)
        return dict(error.value.violations)

    before = await gym.get()
    assert (await refused()).keys() == {"axes"}
    assert await refused(axes=[DENSITY, {"parameter": "seed", "values": [1, "x"]}]) == {
        "axes[1].values[1]": "must be a whole number, got 'x'"
    }
    assert (await refused(axes=[{"parameter": "density", "values": [0.1, 2]}])).keys() == {"axes[0].values[1]"}
    assert (await refused(axes=[{"parameter": "density", "range": {"min": 0.1, "max": 1}}])).keys() == {"axes[0].range"}
    assert (await refused(points=[{"densty": 1}])).keys() == {"points[0].densty"}
    assert (await refused(points=[{"seed": 1}])).keys() == {"base.target_density"}
    many = [DENSITY, {"parameter": "seed", "values": list(range(700))}]
    assert (await refused(axes=many))["axes"].startswith("must be at most 1,000 points with those there are, got 1400")
    assert await gym.get() == before


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_a_search_cannot_be_extended(gym: Gym) -> None:
    await gym.create(**SEARCH)
    with pytest.raises(ApiError) as refused:
        await gym.servicer.ExtendSweep(sweep_pb2.ExtendSweepRequest(name=NAME, points=[POINT]), None)
    assert dict(refused.value.violations).keys() == {"name"}


@pytest.mark.parametrize(
    "token", ["x", "ä", "WzFd" * 100, "WyJhIl0=", "W10=", "WzEsMl0=", "Wy05OTk5OTk5OTk5OTk5OTk5OTk5OV0="]
)
@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_a_token_from_elsewhere_is_refused(gym: Gym, token: str) -> None:
    await gym.create(axes=[DENSITY])
    calls = (
        (gym.servicer.ListSweepPoints, sweep_pb2.ListSweepPointsRequest(parent=NAME, page_token=token)),
        (gym.servicer.ListSweepEvents, sweep_pb2.ListSweepEventsRequest(parent=NAME, page_token=token)),
        (gym.servicer.ListSweeps, sweep_pb2.ListSweepsRequest(parent="projects/p", page_token=token)),
    )
    for call, request in calls:
        with pytest.raises(ApiError) as refused:
            await call(request, None)
        assert dict(refused.value.violations).keys() == {"page_token"}
        request.page_token = ""
        request.page_size = -1
        with pytest.raises(ApiError) as refused:
            await call(request, None)
        assert dict(refused.value.violations).keys() == {"page_size"}


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_a_sweep_that_is_not_there_is_not_found(gym: Gym) -> None:
    name = {"name": NAME}
    calls = (
        (gym.servicer.GetSweep, sweep_pb2.GetSweepRequest(**name)),
        (gym.servicer.CancelSweep, sweep_pb2.CancelSweepRequest(**name)),
        (gym.servicer.PauseSweep, sweep_pb2.PauseSweepRequest(**name)),
        (gym.servicer.ResumeSweep, sweep_pb2.ResumeSweepRequest(**name)),
        (gym.servicer.RetrySweep, sweep_pb2.RetrySweepRequest(**name)),
        (gym.servicer.ExtendSweep, sweep_pb2.ExtendSweepRequest(points=[POINT], **name)),
        (gym.servicer.UpdateSweepPolicy, sweep_pb2.UpdateSweepPolicyRequest(**name)),
        (gym.servicer.DeleteSweep, sweep_pb2.DeleteSweepRequest(**name)),
        (gym.servicer.ListSweepPoints, sweep_pb2.ListSweepPointsRequest(parent=NAME)),
        (gym.servicer.ListSweepEvents, sweep_pb2.ListSweepEventsRequest(parent=NAME)),
    )
    for call, request in calls:
        with pytest.raises(ApiError) as error:
            await call(request, None)
        assert (error.value.code.name, error.value.message) == ("NOT_FOUND", f"there is no {NAME}")
    await gym.servicer.DeleteSweep(sweep_pb2.DeleteSweepRequest(allow_missing=True, **name), None)


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_fewer_cells_than_were_asked_for_are_said(gym: Gym) -> None:
    sweep = await gym.create(axes=[DENSITY], random={"points": 5})
    assert sweep.counts.total == 2
    assert "the axes have 2 different cells, fewer than the 5 of the spec" in sweep.notes
