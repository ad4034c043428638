"""Client.sweep and what it returns, against a scripted server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.bert_folder import write_bert
from tests.unit.client.scripted_uploads import Uploads

from mvprune import (
    AsyncClient,
    Client,
    Gate,
    IntegrityError,
    InvalidArgument,
    JobFailed,
    RandomStrategy,
    SearchStrategy,
    Sweep,
    SweepState,
    TicketStrategy,
)
from mvprune.v1 import artifact_pb2, job_pb2, sweep_pb2

from .scripted_server import Fake, job
from .scripted_sweeps import PASSES, SWEEP, always, created, point, points, sweep, watch


def sent(fake: Fake, client: Client, **options: Any) -> sweep_pb2.CreateSweepRequest:
    """The request that a call sends."""
    fake.answers["CreateSweep"] = created
    assert isinstance(client.sweep(**options), Sweep)
    request: sweep_pb2.CreateSweepRequest = fake.requests["CreateSweep"][-1]
    return request


def refusal(client: Client, **options: Any) -> dict[str, str]:
    """The fields that a call is refused for, before it is sent."""
    with pytest.raises(InvalidArgument) as caught:
        client.sweep(**options)
    return dict(caught.value.violations)


def test_what_a_grid_sends(fake: Fake, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Uploads(fake)
    write_bert(tmp_path / "small")
    request = sent(
        fake,
        client,
        model="bert-base-uncased",
        task="sst2",
        axes={"density": [0.03, 0.05], "method": ["movement", "l0"], "seed": range(2)},
        points=[{"density": 1, "model": "small"}, {"teacher": None, "compile": True, "include": ["*.query"]}],
        without=[{"method": "l0", "density": 0.03}],
        gates=["delta_accuracy>=-1.5", Gate("bytes", max=1e7)],
        objectives=["max accuracy", "min latency_ms", "min bytes"],
        seed_policy="worst",
        max_steps=9,
        cpus=2,
        policy={"parallel": 2, "max_failed": 0, "on_failure": "stop", "max_runtime": 60, "max_gpu_hours": 0.5},
        sweep_id="mine",
        display_name="name",
        labels={"team": "search"},
        request_id="once",
        validate_only=True,
    )
    assert (request.parent, request.sweep_id, request.request_id) == ("projects/default", "mine", "once")
    assert request.validate_only
    assert (request.sweep.display_name, dict(request.sweep.labels)) == ("name", {"team": "search"})
    spec = request.sweep.spec
    expected = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", training={"max_steps": 9})
    assert spec.base == expected, "no method: it is an axis"
    assert spec.job_policy.resources.cpus == 2
    assert [axis.parameter for axis in spec.axes] == ["density", "method", "seed"]
    assert [value.number_value for value in spec.axes[2].values] == [0, 1]
    assert spec.points[0]["density"] == 1
    assert spec.points[0]["model"].startswith("upload:")
    assert dict(spec.points[1].items())["teacher"] is None
    assert list(spec.points[1]["include"]) == ["*.query"]
    assert dict(spec.exclude[0].items()) == {"method": "l0", "density": 0.03}
    assert spec.WhichOneof("strategy") == "grid"
    assert [(one.metric, one.direction) for one in spec.objectives] == [
        ("eval/accuracy", 1),
        ("latency_ms", 2),
        ("bytes", 2),
    ]
    assert [gate.metric for gate in spec.gates] == ["delta/accuracy", "bytes"]
    assert spec.seeds == sweep_pb2.SweepSpec.WORST
    policy = request.sweep.policy
    assert (policy.parallel, policy.max_failed, policy.HasField("max_failed")) == (2, 0, True)
    assert (policy.on_failure, policy.max_runtime.seconds) == (sweep_pb2.SweepPolicy.STOP, 60)


def test_the_base_has_a_method_with_the_options_given(fake: Fake, client: Client) -> None:
    axes = {"method": ["magnitude", "soft_movement"]}
    base = sent(
        fake, client, model="m", task="sst2", density=0.1, axes=axes, penalty=10, pruning_start=0.2
    ).sweep.spec.base
    assert base.soft_movement.penalty == 10
    assert base.soft_movement.schedule.pruning_start == 0.2
    assert sent(fake, client, model="m", density=0.1).sweep.spec.base.WhichOneof("method") == "auto"
    fields = refusal(client, model="m", density=0.1, axes=axes, penalty=10, selection="local")
    rule = "must have options of one method, got penalty, selection; points take the options of other methods"
    assert fields == {"sweep.spec.base.method": rule}


def test_the_task_of_own_data_is_the_same_as_of_a_job(fake: Fake, client: Client) -> None:
    spec = sent(fake, client, model="m", density=0.1, axes={"train": ["server:/a.tsv", "s3://b/c.tsv"]}).sweep.spec
    assert spec.base.task == "text-classification"
    assert [value.string_value for value in spec.axes[0].values] == ["server:/a.tsv", "s3://b/c.tsv"]


def test_teachers_are_models_jobs_or_words(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = always(job())
    axes = {"teacher": ["server:/big", "train", "none", "job:j2", client.get("j1")], "density": [0.1]}
    values = sent(fake, client, model="m", task="sst2", axes=axes).sweep.spec.axes[0].values
    expected = ["server:/big", "train", "none", "job:j2", "job:projects/default/jobs/j1"]
    assert [value.string_value for value in values] == expected


@pytest.mark.parametrize("options", [{"pattern": "2:4"}, {"axes": {"pattern": ["2:4", "1:4"]}}])
def test_a_pattern_has_a_density(fake: Fake, client: Client, options: Any) -> None:
    spec = sent(fake, client, model="m", task="sst2", **options).sweep.spec
    assert (spec.WhichOneof("strategy"), spec.base.target_density) == ("grid", 0)


def test_a_search_is_the_default_where_no_density_is_given(fake: Fake, client: Client) -> None:
    spec = sent(fake, client, model="m", task="sst2", max_loss=1.5).sweep.spec
    assert (spec.WhichOneof("strategy"), spec.search.goal, spec.search.seeds) == ("search", 3, 1)
    assert not spec.search.HasField("min_density")
    assert (spec.max_loss, [*spec.gates]) == (1.5, [])
    strategy = SearchStrategy("bytes", min_density=0.02, max_density=0.4, tolerance=0.1, seeds=3)
    spec = sent(fake, client, model="m", task="squad", gates=["f1>=80"], strategy=strategy).sweep.spec
    found = spec.search
    assert (found.goal, found.min_density, found.max_density, found.tolerance, found.seeds) == (2, 0.02, 0.4, 0.1, 3)
    assert sent(fake, client, model="m", task="sst2", max_loss=1, pattern="1x4").sweep.spec.HasField("search")
    for given in ({"density": 0.1}, {"axes": {"density": [0.1]}}):
        assert sent(fake, client, model="m", task="sst2", max_loss=1, **given).sweep.spec.HasField("grid")


def test_a_random_sweep_draws_from_ranges(fake: Fake, client: Client) -> None:
    axes = {"learning_rate": {"min": 1e-5, "max": 1e-4, "log": True}, "density": [0.03, 0.1]}
    spec = sent(fake, client, model="m", task="sst2", axes=axes, strategy=RandomStrategy(20, seed=3)).sweep.spec
    assert (spec.random.points, spec.random.seed) == (20, 3)
    assert spec.axes[0].range == sweep_pb2.Range(min=1e-5, max=1e-4, log=True)


def test_tickets_take_tasks_densities_and_seeds_and_only_rewind_of_the_methods(fake: Fake, client: Client) -> None:
    axes = {"task": ["sst2", "mrpc"], "density": [0.5, 0.3], "seed": [0, 1]}
    strategy = TicketStrategy(0.2, ["shuffled"], ["sst2"], 0.6, ["sst2"], ["mrpc"])
    spec = sent(fake, client, model="m", axes=axes, rewind=0.1, strategy=strategy).sweep.spec
    assert (spec.WhichOneof("strategy"), spec.base.WhichOneof("method")) == ("tickets", "locked_mask")
    assert (spec.base.locked_mask.rewind, spec.base.task) == (0.1, "")
    found = spec.tickets
    assert (found.step, found.transfer_density) == (0.2, 0.6)
    assert list(found.controls) == [sweep_pb2.TicketStrategy.SHUFFLED]
    assert (found.table_tasks, found.transfer_sources, found.transfer_targets) == (["sst2"], ["sst2"], ["mrpc"])
    found = sent(fake, client, model="m", task="sst2", density=0.5, strategy="tickets").sweep.spec.tickets
    assert found == sweep_pb2.TicketStrategy()


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"axes": {"density": 0.1}}, "sweep.spec.axes[0]", "must be a list of values, got 0.1"),
        ({"axes": {"method": "movement"}}, "sweep.spec.axes[0]", "must be a list of values, got 'movement'"),
        ({"axes": {"seed": [0], "density": [0.1, math.nan]}}, "sweep.spec.axes[1].values[1]", "must be a number"),
        ({"axes": {"density": [object()]}}, "sweep.spec.axes[0].values[0]", "must be a number, a text"),
        ({"axes": {"task": ["\ud800"]}}, "sweep.spec.axes[0].values[0]", "must be UTF-8"),
        ({"axes": {"density": {"min": 1}}}, "sweep.spec.axes[0].range", "must be min, max and perhaps log"),
        ({"axes": {"density": {"min": 0, "max": "x"}}}, "sweep.spec.axes[0].range", "must be min, max"),
        ({"points": [{"density": b"1"}]}, "sweep.spec.points[0].density", "must be a number, a text"),
        ({"points": [0.1]}, "sweep.spec.points[0]", "must be parameters with their values, got 0.1"),
        ({"without": ["x"]}, "sweep.spec.exclude[0]", "must be parameters with their values, got 'x'"),
        ({"gates": ["f1"]}, "sweep.spec.gates[0]", "must be METRIC>=NUMBER"),
        ({"objectives": ["accuracy"]}, "sweep.spec.objectives[0]", "must be max or min and a metric"),
        (
            {"strategy": "bisect"},
            "strategy",
            "must be 'grid', 'search', 'descent', 'bisection', 'tickets', a",
        ),
        ({"strategy": TicketStrategy(controls=["shufled"])}, "sweep.spec.tickets.controls", "did you mean shuffled?"),  # type: ignore[list-item]
        (
            {"strategy": "tickets", "pruning_start": 0.1},
            "sweep.spec.base.locked_mask.pruning_start",
            "must be unset for locked_mask",
        ),
        ({"strategy": RandomStrategy("x")}, "sweep.spec.random.points", "must be a whole number that fits, got 'x'"),  # type: ignore[arg-type]
        ({"policy": {"paralel": 1}}, "sweep.policy.paralel", "did you mean parallel?"),
        ({"policy": {"parallel": 1.5}}, "sweep.policy.parallel", "must be a whole number that fits, got '1.5'"),
        ({"policy": {"on_failure": "x"}}, "sweep.policy.on_failure", "must be one of let_run, stop, got 'x'"),
        ({"policy": {"parallel": 0}}, "sweep.policy.parallel", "must be at least 1, got 0"),
        ({"strategy": SearchStrategy(seeds=0)}, "sweep.spec.search.seeds", "must be at least 1, got 0"),
        ({"seed_policy": "best"}, "sweep.spec.seeds", "must be one of mean, worst, got 'best'"),
        ({"strict_gates": True}, "strict_gates", "must be unset in a sweep, whose gates make no job fail"),
        ({"penalti": 1}, "sweep.spec.base.auto.penalti", "did you mean penalty?"),
        ({"learning_rate": "x"}, "sweep.spec.base.training.learning_rate", "must be a number, got 'x'"),
        ({"cpus": "x"}, "sweep.spec.job_policy.resources.cpus", "must be a number, got 'x'"),
    ],
)
def test_what_no_request_can_hold(client: Client, options: dict[str, Any], field: str, words: str) -> None:
    fields = refusal(client, model="m", task="sst2", **options)
    assert list(fields) == [field]
    assert words in fields[field]


def test_the_same_call_in_the_same_run_is_the_same_request(fake: Fake, client: Client) -> None:
    first, again, other, free = (
        sent(fake, client, model="m", density=0.1, axes={"seed": seeds}, run_id=run).request_id
        for seeds, run in (([1], "r"), ([1], "r"), ([2], "r"), ([1], ""))
    )
    assert first == again
    assert len({first, other, free}) == 3


def test_what_is_read_of_a_sweep(fake: Fake, client: Client) -> None:
    fake.answers["GetSweep"] = always(
        sweep("SUCCEEDED", recommendation=PASSES, policy={"parallel": 2, "maxRuntime": "60s"}, labels={"a": "b"})
    )
    found = client.get_sweep("s1")
    assert fake.asked("GetSweep").name == SWEEP
    assert (found.id, found.state) == ("s1", SweepState.SUCCEEDED)
    assert [(axis.parameter, axis.values) for axis in found.spec.axes] == [("density", (0.03, 0.05)), ("seed", (0, 1))]
    assert isinstance(found.spec.axes[1].values[0], int)
    assert (found.spec.strategy, found.spec.seeds) == ("grid", "mean")
    assert found.spec.gates == (Gate("delta/accuracy", min=-0.01),)
    assert [(one.metric, one.direction) for one in found.spec.objectives][1] == ("bytes", "minimize")
    assert (found.policy.parallel, found.policy.max_failed, found.policy.on_failure) == (2, None, "let_run")
    assert found.policy.max_runtime == 60
    assert (found.counts.total, found.cost.saved_runtime) == (4, 5400)
    assert found.recommendation is not None
    assert found.recommendation.points == (2,)
    assert found.estimate is None
    assert not client.get_sweep(found).state_reason


@pytest.mark.parametrize("given", ["", "a/b", "projects/p/jobs/j"])
def test_what_names_no_sweep(client: Client, given: str) -> None:
    with pytest.raises(InvalidArgument, match="must be a sweep's id or its name"):
        client.get_sweep(given)


def test_sweeps_are_listed_page_by_page(fake: Fake, client: Client) -> None:
    pages = {"": (["a", "b"], "2"), "2": (["c"], "")}

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        names, token = pages[request.page_token]
        found = [sweep(name=f"projects/default/sweeps/{name}") for name in names]
        return sweep_pb2.ListSweepsResponse(sweeps=found, next_page_token=token)

    fake.answers["ListSweeps"] = answer
    assert [one.id for one in client.sweeps()] == ["a", "b", "c"]
    assert [one.id for one in client.sweeps(limit=1)] == ["a"]
    assert list(client.sweeps(limit=0)) == []
    with pytest.raises(InvalidArgument):
        next(client.sweeps(limit=-1))


def test_only_the_manifest_of_an_artifact_is_read(fake: Fake, client: Client) -> None:
    name = fake.serve({"weights.safetensors": b"w" * 3000})
    assert client.manifest(name).startswith(b'{"files": ')
    assert [request.path for request in fake.requests["ReadFile"]] == ["manifest.json"]
    assert "GetJob" not in fake.requests
    fake.answers["GetJob"] = always(job("FAILED"))
    with pytest.raises(JobFailed):
        client.manifest("j1")
    wrong = artifact_pb2.ReadFileResponse(data=b"{}", end=True)
    fake.answers["ReadFile"] = lambda request, context: iter([wrong])
    with pytest.raises(IntegrityError):
        client.manifest(name)


async def test_the_client_for_asyncio(fake: Fake, tmp_path: Path) -> None:
    artifact = fake.serve({"weights.safetensors": b"w" * 3000})
    listed = points(point(1), point(2, artifact=artifact, optimal=True))
    fake.answers |= {"CreateSweep": created, "ListSweepPoints": listed, "PauseSweep": always(sweep("PAUSED"))}
    fake.answers["WatchSweep"] = watch(sweep("ACTIVE"), sweep("SUCCEEDED", recommendation=PASSES))
    fake.answers["GetSweep"] = always(sweep("SUCCEEDED", recommendation=PASSES))
    fake.answers["ListSweeps"] = always(sweep_pb2.ListSweepsResponse(sweeps=[sweep()]))
    async with AsyncClient(fake.address) as client:
        one = await client.sweep(model="m", task="sst2", max_loss=1.0)
        assert [update.state async for update in one.watch()] == ["ACTIVE", "SUCCEEDED"]
        assert (await one.wait()).state is SweepState.SUCCEEDED
        assert [each.number for each in await one.front()] == [2]
        recommended = await one.recommended()
        assert recommended is not None
        assert recommended.number == 2
        assert len(await one.frame()) == 2
        assert (await one.pause()).state is SweepState.PAUSED
        assert [each.id async for each in client.sweeps()] == ["s1"]
        folder = await one.download_recommended(tmp_path / "best")
        assert (await client.manifest(artifact)) == (folder / "manifest.json").read_bytes()
