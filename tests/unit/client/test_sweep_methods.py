"""What a sweep that the client returned can do, against a scripted server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import grpc
import pytest

from mvprune import (
    Client,
    Conflict,
    InvalidArgument,
    NoPointPasses,
    Sweep,
    SweepCancelled,
    SweepFailed,
    SweepState,
    SweepWaitTimeout,
)
from mvprune.client.sweep_models import PointState
from mvprune.v1 import sweep_pb2

from .scripted_server import Fake, refuse
from .scripted_sweeps import MISSES, PASSES, SWEEP, always, point, points, sweep, watch


@pytest.fixture
def bound(fake: Fake, client: Client) -> Sweep:
    fake.answers["GetSweep"] = always(sweep("ACTIVE"))
    return client.get_sweep("s1")


def test_wait_returns_the_sweep_that_succeeded(fake: Fake, bound: Sweep) -> None:
    fake.answers["WatchSweep"] = watch(sweep("ACTIVE"), sweep("SUCCEEDED", recommendation=MISSES))
    seen: list[Sweep] = []
    done = bound.wait(on_progress=seen.append)
    assert (done.state, len(seen)) == (SweepState.SUCCEEDED, 3)
    assert [one.state for one in bound.watch()] == ["ACTIVE", "SUCCEEDED"]


def test_a_watch_that_is_cut_goes_on(fake: Fake, bound: Sweep) -> None:
    def cut(request: Any, context: grpc.ServicerContext) -> Any:
        yield sweep_pb2.WatchSweepResponse(sweep=sweep("ACTIVE"))

    fake.answers["WatchSweep"] = [cut, watch(sweep("SUCCEEDED"))]
    assert [one.state for one in bound.watch()] == ["ACTIVE", "SUCCEEDED"]


def test_how_a_sweep_can_end_without_a_result(fake: Fake, bound: Sweep) -> None:
    counts = {"total": 4, "failed": 4}
    fake.answers["WatchSweep"] = watch(sweep("FAILED", stateReason="NOTHING_SUCCEEDED", counts=counts))
    with pytest.raises(SweepFailed, match=r"sweep s1 failed \(NOTHING_SUCCEEDED\): 4 of 4 points failed") as failed:
        bound.wait()
    assert failed.value.sweep.state is SweepState.FAILED
    fake.answers["WatchSweep"] = watch(sweep("CANCELLED"))
    with pytest.raises(SweepCancelled, match="sweep s1 was cancelled"):
        bound.wait()
    fake.answers["WatchSweep"] = lambda request, context: iter([sweep_pb2.WatchSweepResponse(sweep=sweep())])
    with pytest.raises(SweepWaitTimeout, match=r"sweep s1 is still ACTIVE after 0\.2 s"):
        bound.wait(0.2)
    with pytest.raises(InvalidArgument):
        bound.wait(math.nan)


def test_points_the_front_and_the_recommended_one(fake: Fake, bound: Sweep) -> None:
    failure = {"reason": "NAN_LOSS", "message": "the loss became NaN"}
    listed = [point(1), point(2, optimal=True), point(3, "FAILED", failure=failure, progress={"phase": "dense"})]
    fake.answers["ListSweepPoints"] = points(*listed)
    found = list(bound.points())
    assert [(one.number, one.state) for one in found] == [(1, "SUCCEEDED"), (2, "SUCCEEDED"), (3, "FAILED")]
    assert found[0].cell == {"density": 0.03, "seed": 1}
    assert isinstance(found[0].cell["seed"], int)
    assert found[0].accounting is not None
    assert found[2].accounting is None
    assert found[2].failure is not None
    assert [one.number for one in bound.front()] == [2]
    assert bound.recommended() is None
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation=MISSES))
    assert bound.recommended() is None, "a miss is not recommended"
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation={**PASSES, "point": 3}))
    recommended = bound.recommended()
    assert recommended is not None
    assert recommended.number == 3
    assert list(fake.requests["ListSweepPoints"][-1].numbers) == [3], "only that one is read"


def test_a_state_that_this_version_does_not_know(fake: Fake, bound: Sweep) -> None:
    odd = point(1, "PENDING")
    odd.state = 99  # type: ignore[assignment]
    fake.answers["ListSweepPoints"] = points(odd)
    assert next(bound.points()).state is PointState.UNSPECIFIED


def test_the_points_as_a_frame(fake: Fake, bound: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers["ListSweepPoints"] = points(point(1), point(2, "PENDING"))
    frame = bound.frame()
    assert list(frame["number"]) == [1, 2]
    assert list(frame["state"]) == ["SUCCEEDED", "PENDING"]
    assert frame["delta/accuracy"][0] == -0.025
    assert math.isnan(frame["delta/accuracy"][1])
    assert math.isnan(frame["bytes"][1])
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        bound.frame()


def test_changes_of_a_sweep(fake: Fake, bound: Sweep) -> None:
    for verb in ("Cancel", "Pause", "Resume", "Retry", "Extend"):
        fake.answers[f"{verb}Sweep"] = always(sweep("PAUSED"))
    fake.answers |= {"UpdateSweepPolicy": always(sweep()), "DeleteSweep": always(sweep_pb2.DeleteSweepResponse())}
    assert bound.cancel("wrong data").state is SweepState.PAUSED
    assert (fake.asked("CancelSweep").reason, fake.asked("CancelSweep").etag) == ("wrong data", "")
    bound.pause(if_unchanged=True)
    bound.resume()
    bound.retry()
    assert fake.asked("PauseSweep").etag == "3"
    bound.extend({"density": [0.2]}, [{"density": 0.3}])
    request = fake.asked("ExtendSweep")
    assert (request.axes[0].parameter, request.points[0]["density"]) == ("density", 0.3)
    assert not request.validate_only
    bound.extend({"density": [0.2]}, validate_only=True)
    assert fake.requests["ExtendSweep"][-1].validate_only
    bound.update_policy(parallel=8, max_failed=None, reuse=False)
    request = fake.asked("UpdateSweepPolicy")
    assert (request.policy.parallel, list(request.update_mask.paths)) == (8, ["parallel", "max_failed", "reuse"])
    assert not request.policy.HasField("max_failed")
    bound.delete()
    assert fake.asked("DeleteSweep").name == SWEEP
    fake.answers["CancelSweep"] = lambda request, context: refuse(context, grpc.StatusCode.ABORTED, "it has changed")
    with pytest.raises(Conflict):
        bound.cancel(if_unchanged=True)


def test_events(fake: Fake, bound: Sweep) -> None:
    event = sweep_pb2.SweepEvent(sequence=1, type="SWEEP_CREATED", actor="local", details={"points": "4"})
    fake.answers["ListSweepEvents"] = always(sweep_pb2.ListSweepEventsResponse(events=[event]))
    (found,) = bound.events()
    assert (found.sequence, found.type, found.details) == (1, "SWEEP_CREATED", {"points": "4"})


def test_downloads(fake: Fake, bound: Sweep, tmp_path: Path) -> None:
    artifact = fake.serve({"weights.safetensors": b"w" * 3000})
    cell = {"model": "/models/a b", "density": 0.05, "seed": 2}
    fake.answers["ListSweepPoints"] = points(point(1), point(2, artifact=artifact, optimal=True, cell=cell))
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation=PASSES))
    assert bound.download_recommended(tmp_path / "best") == tmp_path / "best"
    assert (tmp_path / "best" / "weights.safetensors").stat().st_size == 3000
    folder = tmp_path / "front" / "2-model=a_b-density=0.05-seed=2"
    assert bound.download_front(tmp_path / "front") == {2: folder}
    assert (folder / "manifest.json").exists()
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation=MISSES))
    with pytest.raises(NoPointPasses, match=r"the closest miss: movement at 3\.0 % misses"):
        bound.download_recommended(tmp_path / "none")
    fake.answers["GetSweep"] = always(sweep("ACTIVE"))
    with pytest.raises(NoPointPasses, match="no point has a result yet"):
        bound.download_recommended(tmp_path / "none")
    assert not (tmp_path / "none").exists()
