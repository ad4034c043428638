"""mvpctl sweep get, list, watch, points, cancel, …, download."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.cli.processes import started
from tests.unit.client.scripted_server import Fake, Mvpctl, always, refuse
from tests.unit.client.scripted_sweeps import MISSES, PASSES, SWEEP, point, points, sweep, watch
from tests.waiting import PATIENCE

from mvprune.v1 import sweep_pb2


def cell(density: float, seed: int) -> dict[str, Any]:
    return {"density": density, "seed": seed}


@pytest.fixture
def ended(fake: Fake) -> None:
    """A sweep that has ended: two cells, the first with two seeds."""
    done = sweep(
        "SUCCEEDED",
        recommendation={**PASSES, "point": 3},
        counts={"total": 6, "succeeded": 3, "reused": 1, "failed": 1, "skipped": 1, "cancelled": 1, "baselines": 2},
        labels={"team": "search"},
        displayName="small",
        creator="token-k3h9",
    )
    metrics = {"eval/accuracy": 0.885, "dense/accuracy": 0.9, "delta/accuracy": -0.015}
    metrics |= {"delta_low/accuracy": -0.0251, "delta_high/accuracy": -0.0052}
    failure = {"reason": "NAN_LOSS", "message": "the loss became NaN"}
    fake.answers["GetSweep"] = always(done)
    fake.answers["ListSweeps"] = always(sweep_pb2.ListSweepsResponse(sweeps=[done]))
    fake.answers["ListSweepPoints"] = points(
        point(1, optimal=True, cell=cell(0.03, 0)),
        point(2, optimal=True, cell=cell(0.03, 1), metrics=metrics, reused=True),
        point(3, cell=cell(0.05, 0)),
        point(4, "FAILED", cell=cell(0.05, 1), failure=failure),
        point(5, "SKIPPED", cell=cell(0.1, 0), stateReason="BUDGET_USED", job=""),
    )


@pytest.mark.usefixtures("ended")
def test_get_shows_the_recommendation_the_front_and_the_cost(mvpctl: Mvpctl) -> None:
    outcome = mvpctl("sweep", "get", "s1")
    assert outcome.code == 0
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    for line in (
        "sweep s1",
        "name small",
        "state SUCCEEDED",
        "points [##############################] 6 of 6 points: "
        "3 succeeded (1 reused), 1 failed, 1 cancelled, 1 skipped",
        "compares 2 density x 2 seed, by grid, of bert-base-uncased on sst2",
        "gates delta_accuracy>=-1",
        f"result point 3: {PASSES['text']}",
        "cost 2h00m of jobs, 2.0 GPU hours, 30m00s of it for 2 shared baselines, 1h30m saved at most by sharing them",
        "labels team=search",
        "creator token-k3h9",
        "FRONT DENSITY ACCURACY DIFFERENCE REACHED BYTES N",
        "1, 2 3.0 % 0.8800 ± 0.0071 -0.0200 ± 0.0071 3.0 % 54.8 MB 2",
    ):
        assert line in lines, outcome.out
    data = mvpctl("sweep", "get", "s1", "-o", "json").json
    assert [one["number"] for one in data["front"]] == [1, 2]
    assert data["recommendation"]["point"] == 3
    assert mvpctl("sweep", "get", "s1", "--quiet").out == "s1\n"


def test_a_search_for_a_fast_model_shows_how_fast_each_is(fake: Fake, mvpctl: Mvpctl) -> None:
    fast = {"eval/accuracy": 0.885, "latency_ms": 4.2063, "int8_latency_ratio": 2.3236}
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED"))
    fake.answers["ListSweepPoints"] = points(
        point(1, optimal=True, cell={"density": 0.5}, metrics=fast), point(2, cell={"density": 0.3})
    )
    for command in ("get", "points"):
        lines = [" ".join(line.split()) for line in mvpctl("sweep", command, "s1").out.splitlines()]
        assert any(line.endswith("REACHED BYTES LATENCY VS INT8 N") for line in lines), lines
        assert any(line.endswith("54.8 MB 4.21 ms 2.32x 1") for line in lines), lines


def test_get_shows_which_tickets_win(fake: Fake, mvpctl: Mvpctl) -> None:
    spec = {
        "base": {"model": "m", "task": "sst2", "lockedMask": {}},
        "axes": [{"parameter": "density", "values": [0.9]}, {"parameter": "seed", "values": [0, 1]}],
        "tickets": {"controls": ["SHUFFLED"], "transferDensity": 0.9},
    }
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", spec=spec))
    found = []
    for seed in (0, 1):
        for run, density, accuracy in (("dense", 1, 0.80), ("ticket", 0.9, 0.79), ("shuffled", 0.9, 0.6)):
            own = {"run": run, "task": "sst2", "density": density, "seed": seed}
            metrics = {"eval/accuracy": accuracy + seed / 50}
            found.append(point(len(found) + 1, cell=own, task="sst2", seed=seed, metrics=metrics))
    fake.answers["ListSweepPoints"] = points(*found)
    outcome = mvpctl("sweep", "get", "s1")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    for line in (
        "compares 1 density x 2 seed, lottery tickets, of m on sst2",
        "result sst2: the ticket of 90.0 % wins",
        "TICKETS",
        "TASK KEPT METRIC DENSE TICKET DIFFERENCE WINS SHUFFLED WEIGHTS",
        "sst2 90.0 % accuracy 81.0 ± 1.4 (2) 80.0 ± 1.4 (2) -1.0 ± 0.0 yes 61.0 ± 1.4 (2)",
        "TRANSFER AT 90.0 %",
        "dense 81.0 ± 1.4 (2)",
    ):
        assert line in lines, outcome.out
    data = mvpctl("sweep", "get", "s1", "-o", "json").json["tickets"]
    assert data["winners"] == "sst2: the ticket of 90.0 % wins"
    assert data["rows"][0]["comparison"]["wins"] is True
    for which in ("--recommended", "--front"):
        refused = mvpctl("sweep", "download", "s1", "out", which)
        assert refused.code == 5
        assert "a study of tickets shows which of them win" in refused.err


def test_get_shows_an_active_sweep(fake: Fake, mvpctl: Mvpctl) -> None:
    miss = {**MISSES, "point": 1}
    active = sweep("ACTIVE", stateReason="WAITING_FOR_QUOTA", recommendation=miss)
    fake.answers |= {"GetSweep": always(active), "ListSweepPoints": points()}
    outcome = mvpctl("sweep", "get", "s1")
    assert outcome.code == 0, "it has not ended"
    assert "ACTIVE: waits until the project's queue has room (WAITING_FOR_QUOTA)" in outcome.out
    assert "[###############...............] 2 of 4 points: 2 succeeded, 1 running, 1 pending" in outcome.out
    assert f"none passes; the closest miss: {MISSES['text']}" in outcome.out


@pytest.mark.usefixtures("ended")
def test_points_are_a_table(fake: Fake, mvpctl: Mvpctl) -> None:
    outcome = mvpctl("sweep", "points", "s1")
    second = ["2", "*", "3.0", "%", "1", "SUCCEEDED", "(reused)"]
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["#", "DENSITY", "SEED", "STATE", "ACCURACY", "DIFFERENCE", "REACHED", "BYTES", "N"],
        ["1", "*", "3.0", "%", "0", "SUCCEEDED", "0.8750", "-0.0250", "3.0", "%", "54.8", "MB", "2"],
        [*second, "0.8850", "-0.0150", "(-0.0251", "to", "-0.0052)", "3.0", "%", "54.8", "MB", "2"],
        ["3", "5.0", "%", "0", "SUCCEEDED", "0.8750", "-0.0250", "3.0", "%", "54.8", "MB", "1"],
        ["4", "5.0", "%", "1", "FAILED", "(NAN_LOSS)"],
        ["5", "10.0", "%", "0", "SKIPPED", "(BUDGET_USED)"],
    ]
    assert mvpctl("sweep", "points", "s1", "--quiet").out.split() == [f"j1-{number}" for number in (1, 2, 3, 4)]
    front = mvpctl("sweep", "points", "s1", "--front", "-o", "json").json
    assert [one["number"] for one in front] == [1, 2]
    outcome = mvpctl("sweep", "points", "s1", "--limit", "2")
    assert outcome.err == "these are the first 2; raise --limit to list more\n"


@pytest.mark.usefixtures("ended")
def test_list(mvpctl: Mvpctl) -> None:
    outcome = mvpctl("sweep", "list")
    assert outcome.out.splitlines()[0].split() == [
        "SWEEP",
        "STATE",
        "POINTS",
        "FAILED",
        "TASK",
        "NAME",
        "AGE",
        "RESULT",
    ]
    assert outcome.out.splitlines()[1].split()[:5] == ["s1", "SUCCEEDED", "6/6", "1", "sst2"]
    assert mvpctl("sweep", "list", "--quiet").out == "s1\n"
    assert mvpctl("sweep", "list", "-o", "json").json[0]["uid"] == "u1"


@pytest.mark.usefixtures("ended")
def test_watch_prints_a_line_a_change(fake: Fake, mvpctl: Mvpctl) -> None:
    done = fake.answers["GetSweep"](None, None)  # type: ignore[operator]
    fake.answers["GetSweep"] = always(sweep("ACTIVE"))
    fake.answers["WatchSweep"] = watch(sweep("ACTIVE"), sweep("PAUSED"), done)
    lines = mvpctl("sweep", "watch", "s1").out.splitlines()
    assert lines[:3] == [
        "ACTIVE  2 of 4 points: 2 succeeded, 1 running, 1 pending",
        "PAUSED  2 of 4 points: 2 succeeded, 1 running, 1 pending",
        "SUCCEEDED  6 of 6 points: 3 succeeded (1 reused), 1 failed, 1 cancelled, 1 skipped",
    ]
    updates = [json.loads(line) for line in mvpctl("sweep", "watch", "s1", "-o", "json").out.splitlines()]
    assert [one["state"] for one in updates] == ["ACTIVE", "PAUSED", "SUCCEEDED"]


def test_an_interrupted_watch_says_that_the_sweep_continues(fake: Fake) -> None:
    watching, done = threading.Event(), threading.Event()

    def silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(done.set)
        yield sweep_pb2.WatchSweepResponse(sweep=sweep())
        watching.set()
        done.wait(PATIENCE)

    fake.answers |= {"GetSweep": always(sweep()), "WatchSweep": silent}
    with started(fake, "sweep", "watch", SWEEP) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ACTIVE")
            assert watching.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    text = "interrupted; sweep s1 continues. To wait again: mvpctl sweep watch s1"
    assert (process.returncode, err.strip()) == (130, text)


@pytest.mark.parametrize(
    ("command", "method"),
    [
        ("cancel s1 --reason wrong", "CancelSweep"),
        ("pause s1", "PauseSweep"),
        ("resume s1", "ResumeSweep"),
        ("retry s1", "RetrySweep"),
        ("extend s1 --density 0.2,0.3 --seed 0..1 --point density=0.5", "ExtendSweep"),
        ("update s1 --parallel 8 --sweep-max-runtime 2h --unset max_failed", "UpdateSweepPolicy"),
    ],
)
def test_changes(fake: Fake, mvpctl: Mvpctl, command: str, method: str) -> None:
    fake.answers |= {"GetSweep": always(sweep()), method: always(sweep("PAUSED"))}
    outcome = mvpctl("sweep", *command.split())
    assert (outcome.code, outcome.out) == (
        0,
        "sweep s1 is PAUSED; 2 of 4 points: 2 succeeded, 1 running, 1 pending\n",
    )
    request = fake.asked(method)
    assert request.name == SWEEP
    if method == "CancelSweep":
        assert request.reason == "wrong"
    if method == "ExtendSweep":
        assert [axis.parameter for axis in request.axes] == ["density", "seed"]
        assert request.points[0]["density"] == 0.5
    if method == "UpdateSweepPolicy":
        assert (request.policy.parallel, request.policy.max_runtime.seconds) == (8, 7200)
        assert sorted(request.update_mask.paths) == ["max_failed", "max_runtime", "parallel"]
    assert mvpctl("sweep", *command.split(), "-o", "json").json["state"] == "PAUSED"
    assert mvpctl("sweep", *command.split(), "--quiet").out == "s1\n"


def test_a_dry_run_of_an_extension_adds_nothing(fake: Fake, mvpctl: Mvpctl) -> None:
    extended = sweep()
    extended.counts.total += 2
    extended.notes.append("seed: does not matter")
    extended.estimate.text = "2 jobs + 0 baselines; about 3 min"
    fake.answers |= {"GetSweep": always(sweep()), "ExtendSweep": always(extended)}
    command = ("sweep", "extend", "s1", "--density", "0.2,0.3", "--validate-only")
    lines = mvpctl(*command).out.splitlines()
    assert lines[0] == "valid: 2 new points; nothing was added"
    assert lines[-2:] == ["note: seed: does not matter", "2 jobs + 0 baselines; about 3 min"]
    assert fake.asked("ExtendSweep").validate_only
    assert mvpctl(*command, "-o", "json").json["counts"]["total"] == extended.counts.total
    assert mvpctl(*command, "--quiet").out == ""


def test_delete(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers |= {"GetSweep": always(sweep()), "DeleteSweep": always(sweep_pb2.DeleteSweepResponse())}
    assert mvpctl("sweep", "delete", "s1").out == "sweep s1 deleted\n"
    assert mvpctl("sweep", "delete", "s1", "-o", "json").json == {"deleted": "s1"}


@pytest.mark.parametrize(
    ("command", "field", "shown"),
    [
        ("extend s1 --density 2,3", "axes[0].values[1]", "axes[0].values[1] (--density)"),
        ("extend s1 --point density=2", "points[0].density", "points[0].density (--point)"),
        (
            "update s1 --sweep-max-runtime 1s",
            "sweep.policy.max_runtime",
            "sweep.policy.max_runtime (--sweep-max-runtime)",
        ),
        ("update s1 --parallel 99999", "policy.parallel", "policy.parallel (--parallel)"),
    ],
)
def test_errors_of_changes_name_the_option(fake: Fake, mvpctl: Mvpctl, command: str, field: str, shown: str) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations={field: "must be less, got more"})

    fake.answers |= {"GetSweep": always(sweep()), "ExtendSweep": answer, "UpdateSweepPolicy": answer}
    assert mvpctl("sweep", *command.split()).err == f"error: {shown}: must be less, got more\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("extend s1", "values or --point must be given, got neither"),
        ("update s1", "a setting must be given, got none"),
        ("update s1 --parallel 2 --unset parallel", "--unset parallel, --parallel must be one of the two, got both"),
        ("update s1 --unset x", "--unset: invalid choice: 'x'"),
        ("download s1 out", "one of the arguments --recommended --front is required"),
        ("points s1 --limit 0", "--limit must be at least 1, got '0'"),
        ("nonsense", "COMMAND must be one of create, get, list, "),
    ],
)
def test_wrong_usage(mvpctl: Mvpctl, command: str, words: str) -> None:
    outcome = mvpctl("sweep", *command.split())
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {words}"), outcome.err


def test_a_sweep_that_is_not_there(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["GetSweep"] = lambda request, context: refuse(context, grpc.StatusCode.NOT_FOUND, "there is no sweep")
    assert mvpctl("sweep", "get", "s9").code == 8


def test_downloads(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    artifact = fake.serve({"weights.safetensors": b"w" * 3000})
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation={**PASSES, "point": 1}))
    fake.answers["ListSweepPoints"] = points(
        point(1, optimal=True, artifact=artifact), point(2, optimal=True, artifact=artifact, cell=cell(0.05, 7))
    )
    outcome = mvpctl("sweep", "download", "s1", str(tmp_path / "best"), "--recommended")
    assert outcome.out.splitlines()[-2:] == [
        f"point 1: {PASSES['text']}",
        f"downloaded and verified: {tmp_path / 'best'}",
    ]
    folders = [str(tmp_path / "front" / name) for name in ("1-density=0.03-seed=1", "2-density=0.05-seed=7")]
    assert mvpctl("sweep", "download", "s1", str(tmp_path / "front"), "--front", "-o", "json").json == {
        "directories": folders
    }
    assert all((Path(folder) / "manifest.json").exists() for folder in folders)
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation=MISSES))
    outcome = mvpctl("sweep", "download", "s1", str(tmp_path / "none"), "--recommended")
    assert outcome.code == 5
    assert MISSES["text"] in outcome.err
