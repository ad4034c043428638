"""Client: reading, errors."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.client.scripted_server import NAME, Fake, always, echo, job, refuse
from tests.waiting import PATIENCE

import mvprune
from mvprune import Client, JobState
from mvprune.client import transport, wire
from mvprune.v1 import job_pb2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", mvprune.NotFound),
        ("PERMISSION_DENIED", mvprune.NotAuthorised),
        ("UNAUTHENTICATED", mvprune.NotAuthorised),
        ("ALREADY_EXISTS", mvprune.AlreadyExists),
        ("FAILED_PRECONDITION", mvprune.FailedPrecondition),
        ("ABORTED", mvprune.Conflict),
        ("RESOURCE_EXHAUSTED", mvprune.LimitExceeded),
        ("INTERNAL", mvprune.ServerError),
        ("UNIMPLEMENTED", mvprune.ServerError),
    ],
)
def test_errors_have_types(fake: Fake, client: Client, code: str, kind: type[mvprune.RequestRefused]) -> None:
    fake.answers["RetryJob"] = lambda request, context: refuse(context, grpc.StatusCode[code], "no", "WRONG_STATE")
    with pytest.raises(kind, match=r"^no$") as caught:
        client.retry("j1")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason) == (code, "WRONG_STATE")


def _unavailable(request: Any, context: grpc.ServicerContext) -> None:
    refuse(context, grpc.StatusCode.UNAVAILABLE, "the database is away", "DATABASE_UNAVAILABLE")


def test_a_submit_that_found_nobody_is_repeated_with_the_same_request_id(
    fake: Fake, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", PATIENCE)  # on a busy machine two repetitions take long
    fake.answers["CreateJob"] = [_unavailable, _unavailable, echo]
    assert client.submit(model="m", task="sst2", density=0.5).id == "j1"
    first, second, third = fake.requests["CreateJob"]
    assert first == second == third
    assert first.request_id


def test_what_is_not_safe_to_repeat_is_not_repeated(fake: Fake, client: Client) -> None:
    fake.answers |= {"RetryJob": _unavailable, "DeleteJob": _unavailable}
    for call in (client.retry, client.delete):
        with pytest.raises(mvprune.ServerUnreachable, match="not available now: the database is away"):
            call("j1")
    assert len(fake.requests["RetryJob"]) == len(fake.requests["DeleteJob"]) == 1


def test_a_call_that_an_overloaded_server_ended_is_repeated_where_that_is_safe(fake: Fake, client: Client) -> None:
    def end(request: Any, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")  # as gRPC's own server does, before any handler

    fake.answers |= {"GetJob": [end, end, always(job())], "DeleteJob": end}
    assert client.get("j1").id == "j1"
    with pytest.raises(mvprune.ServerUnreachable, match="it may have too many calls"):
        client.delete("j1")
    assert len(fake.requests["DeleteJob"]) == 1


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, 11), (61.0, 1)])
def test_what_came_too_early_is_said_again_for_a_while(fake: Fake, client: Client, seconds: float, calls: int) -> None:
    def too_early(request: Any, context: grpc.ServicerContext) -> None:
        refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too fast", "RATE_LIMITED", retry_seconds=seconds)

    fake.answers["RetryJob"] = too_early
    with pytest.raises(mvprune.LimitExceeded, match=r"^too fast$"):
        client.retry("j1")
    assert len(fake.requests["RetryJob"]) == calls


def test_nobody_there_is_said_soon() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else can listen there, and nobody does
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        start = time.monotonic()
        wanted = f"no server answers at {address}"
        with Client(address) as client, pytest.raises(mvprune.ServerUnreachable, match=wanted):
            client.get("j1")
    assert time.monotonic() - start < 20, "half a minute is what a call may take"


def test_a_host_that_accepts_and_says_nothing_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ATTEMPT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with Client(address) as client, pytest.raises(mvprune.ServerUnreachable):
            client.get("j1")
        assert time.monotonic() - start < 20


def test_a_call_has_a_deadline(fake: Fake) -> None:
    def hang(request: Any, context: grpc.ServicerContext) -> None:
        while context.is_active():
            time.sleep(0.01)

    fake.answers["GetJob"] = hang
    with Client(fake.address, timeout=0.2) as client, pytest.raises(mvprune.ServerUnreachable, match=r"within 0\.2 s"):
        client.get("j1")


def test_a_server_without_tls_is_told_from_one_that_is_away(fake: Fake) -> None:
    wanted = rf"at {fake.address} \(what is there speaks no TLS\)$"
    with Client(f"grpcs://{fake.address}") as client, pytest.raises(mvprune.ServerUnreachable, match=wanted):
        client.get("j1")


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    for text in ("some text", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        (tmp_path / "ca.pem").write_text(text)
        with pytest.raises(mvprune.InvalidArgument, match=r"^ca_cert: .*ca\.pem holds no certificate in PEM$"):
            Client("grpcs://127.0.0.1:1", ca_cert=tmp_path / "ca.pem")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", None, 1e10, pytest.param(10**400, id="10**400")])
@pytest.mark.parametrize("kind", [Client, mvprune.AsyncClient])
def test_a_timeout_is_more_than_no_time_and_up_to_a_year(kind: Any, timeout: Any) -> None:
    wanted = rf"^timeout: must be seconds, more than 0, up to 31,536,000, got {timeout!r:.100}$"
    with pytest.raises(mvprune.InvalidArgument, match=wanted.replace("+", r"\+")):
        kind("127.0.0.1:1", timeout=timeout)


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), "5", 1e10, pytest.param(10**400, id="10**400")])
def test_waiting_takes_up_to_a_year(fake: Fake, client: Client, timeout: Any) -> None:
    fake.answers["GetJob"] = lambda request, context: job("QUEUED")
    with pytest.raises(mvprune.InvalidArgument, match=r"^timeout: must be seconds, up to 31,536,000, got .*$"):
        client.wait("j1", timeout=timeout)


def test_a_limit_below_nothing_is_refused(client: Client) -> None:
    with pytest.raises(mvprune.InvalidArgument, match=r"^limit: must be at least 0, got -1$"):
        list(client.list(limit=-1))


def test_names_of_jobs(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job()
    found = client.get("j1")
    client.get("projects/other/jobs/j2")
    client.get(found)
    assert [request.name for request in fake.requests["GetJob"]] == [NAME, "projects/other/jobs/j2", NAME]
    for bad in ("", "a/b", "projects/x/jobs/"):
        with pytest.raises(mvprune.InvalidArgument, match="must be a job's id"):
            client.get(bad)


def test_a_job_is_read_in_full(fake: Fake, client: Client) -> None:
    message = job(
        "FAILED",
        display_name="mine",
        state_reason="WORKER_LOST",
        labels={"a": "b"},
        metrics={"eval/accuracy": 0.5},
        progress=job_pb2.Progress(phase="pruning", step=3, total_steps=10, density=0.5, loss=0.25),
        model_size=job_pb2.ModelSize(base_parameters=3, encoder_parameters=2, prunable_weights=1),
        failure=job_pb2.Failure(reason="NAN_LOSS", message="lower the learning rate"),
        creator="token-k3h9",
    )
    message.expire_time.FromJsonString("2026-02-07T12:00:00Z")
    message.progress.eta.FromMilliseconds(1500)
    fake.answers["GetJob"] = lambda request, context: message
    found = client.get("j1")
    assert found.id == "j1"
    assert found.state is JobState.FAILED
    assert found.state.is_terminal
    assert found.create_time == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.end_time is None
    assert found.expire_time == datetime(2026, 2, 7, 12, tzinfo=UTC)
    assert found.creator == "token-k3h9"
    assert found.progress == mvprune.Progress("pruning", 3, 10, 0.5, 0.25, 1.5)
    assert found.model_size == mvprune.ModelSize(3, 2, 1)
    assert found.failure == mvprune.Failure("NAN_LOSS", "lower the learning rate")
    assert (found.labels, found.metrics) == ({"a": "b"}, {"eval/accuracy": 0.5})
    assert found.spec.dataset is None


def test_a_job_is_data(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job()
    found = client.get("j1")
    assert found == client.get("j1") == dataclasses.replace(found, calls=found._server)
    assert "calls" not in dataclasses.asdict(found)
    assert "Core" not in repr(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]
    assert found.refresh() == found


def test_states_and_reasons_of_a_newer_server(fake: Fake, client: Client) -> None:
    newer = job(failure=job_pb2.Failure(message="new"))
    newer.MergeFromString(b"\x50\x63")  # state = 99
    newer.failure.MergeFromString(b"\x08\x63")  # reason = 99
    fake.answers["GetJob"] = lambda request, context: newer
    found = client.get("j1")
    assert found.state is JobState.UNSPECIFIED
    assert not found.state.is_terminal
    assert found.failure == mvprune.Failure("REASON_99", "new")


def test_models_mirror_the_contract() -> None:
    from mvprune.v1 import artifact_pb2, catalog_pb2, sweep_pb2

    pairs = {
        job_pb2.Job: mvprune.Job,
        job_pb2.Dataset: mvprune.Dataset,
        job_pb2.Teacher: mvprune.Teacher,
        job_pb2.Baseline: mvprune.Baseline,
        job_pb2.Training: mvprune.Training,
        job_pb2.Progress: mvprune.Progress,
        job_pb2.JobEstimate: mvprune.JobEstimate,
        job_pb2.JobEstimate.Phase: mvprune.PlannedPhase,
        job_pb2.ModelSize: mvprune.ModelSize,
        job_pb2.Failure: mvprune.Failure,
        job_pb2.Attempt: mvprune.Attempt,
        job_pb2.JobEvent: mvprune.JobEvent,
        job_pb2.WatchJobResponse: mvprune.JobUpdate,
        job_pb2.MetricPoint: mvprune.MetricPoint,
        artifact_pb2.Artifact: mvprune.Artifact,
        artifact_pb2.ArtifactFile: mvprune.ArtifactFile,
        artifact_pb2.Accounting: mvprune.Accounting,
        catalog_pb2.ModelEntry: mvprune.ModelEntry,
        catalog_pb2.TaskEntry: mvprune.TaskEntry,
        catalog_pb2.MethodEntry: mvprune.MethodEntry,
        catalog_pb2.MethodOption: mvprune.MethodOption,
        sweep_pb2.Sweep: mvprune.SweepRecord,
        sweep_pb2.SweepPolicy: mvprune.SweepPolicy,
        sweep_pb2.SweepCounts: mvprune.SweepCounts,
        sweep_pb2.SweepCost: mvprune.SweepCost,
        sweep_pb2.SweepEstimate: mvprune.SweepEstimate,
        sweep_pb2.SweepPoint: mvprune.SweepPoint,
        sweep_pb2.SweepEvent: mvprune.SweepEvent,
        sweep_pb2.Recommendation: mvprune.Recommendation,
        sweep_pb2.Objective: mvprune.Objective,
    }
    for message, model in pairs.items():
        expected = [each.name for each in message.DESCRIPTOR.fields]
        assert [each.name for each in dataclasses.fields(model)] == expected, model.__name__
    # A policy is flat: the resources are fields of its own.
    policy = [each.name for each in job_pb2.ExecutionPolicy.DESCRIPTOR.fields if each.name != "resources"]
    resources = [each.name for each in job_pb2.Resources.DESCRIPTOR.fields]
    assert [each.name for each in dataclasses.fields(mvprune.Policy)] == resources + policy
    for enum, kind in ((job_pb2.Job.State, JobState), (job_pb2.Attempt.State, mvprune.AttemptState)):
        assert [name.replace("STATE_UNSPECIFIED", "UNSPECIFIED") for name in dict(enum.items())] == list(kind)


def test_lists_are_paged(fake: Fake, client: Client) -> None:
    pages = {
        "": job_pb2.ListJobsResponse(jobs=[job(uid="1"), job(uid="2")], next_page_token="t"),
        "t": job_pb2.ListJobsResponse(jobs=[job(uid="3")]),
    }
    fake.answers["ListJobs"] = lambda request, context: pages[request.page_token]
    assert [found.uid for found in client.list()] == ["1", "2", "3"]
    assert [found.uid for found in client.list(limit=2)] == ["1", "2"]
    assert [request.page_size for request in fake.requests["ListJobs"]] == [500, 500, 2]
    fake.requests.clear()
    assert len(list(client.list(filter="state = RUNNING", order_by="task"))) == 3
    asked = [(each.filter, each.order_by, each.page_token) for each in fake.requests["ListJobs"]]
    assert asked == [("state = RUNNING", "task", ""), ("state = RUNNING", "task", "t")]


def test_events_attempts_and_metrics(fake: Fake, client: Client) -> None:
    event = job_pb2.JobEvent(sequence=1, type="STATE_CHANGED", to_state="QUEUED", actor="user", details={"a": "b"})
    attempt = job_pb2.Attempt(name=f"{NAME}/attempts/1", state="LOST", node="n1")
    point = job_pb2.MetricPoint(metric="loss", step=5, value=0.5, attempt=1)
    fake.answers |= {
        "ListJobEvents": lambda request, context: job_pb2.ListJobEventsResponse(events=[event]),
        "ListAttempts": lambda request, context: job_pb2.ListAttemptsResponse(attempts=[attempt]),
        "ListMetrics": lambda request, context: job_pb2.ListMetricsResponse(points=[point]),
    }
    assert list(client.events("j1")) == [
        mvprune.JobEvent(1, None, "STATE_CHANGED", "user", JobState.UNSPECIFIED, JobState.QUEUED, {"a": "b"})
    ]
    (found,) = client.attempts("j1")
    assert (found.state, found.node, found.failure) == (mvprune.AttemptState.LOST, "n1", None)
    assert list(client.metrics("j1")) == [mvprune.MetricPoint("loss", 5, 0.5, None, 1)]
    assert fake.asked("ListMetrics").parent == NAME


def test_cancel_and_delete(fake: Fake, client: Client) -> None:
    fake.answers |= {
        "GetJob": lambda request, context: job(),
        "CancelJob": lambda request, context: job("CANCELLING"),
        "DeleteJob": lambda request, context: job_pb2.DeleteJobResponse(),
    }
    found = client.get("j1")
    assert found.cancel("enough").state is JobState.CANCELLING
    assert fake.asked("CancelJob") == job_pb2.CancelJobRequest(name=NAME, reason="enough")
    found.delete()
    assert fake.asked("DeleteJob") == job_pb2.DeleteJobRequest(name=NAME)


def test_retry_goes_on_or_begins_again(fake: Fake, client: Client) -> None:
    fake.answers |= {"GetJob": lambda request, context: job(), "RetryJob": lambda request, context: job("QUEUED")}
    found = client.get("j1")
    assert found.retry().state is JobState.QUEUED
    assert found.retry(from_scratch=True).state is JobState.QUEUED
    assert fake.requests["RetryJob"] == [
        job_pb2.RetryJobRequest(name=NAME),
        job_pb2.RetryJobRequest(name=NAME, from_scratch=True),
    ]


def test_a_write_may_be_bound_to_what_was_read(fake: Fake, client: Client) -> None:
    def changed(request: Any, context: grpc.ServicerContext) -> None:
        refuse(context, grpc.StatusCode.ABORTED, f"not at {request.etag}", "ETAG_MISMATCH")

    fake.answers |= {"CancelJob": changed, "RetryJob": changed, "DeleteJob": changed}
    for write in (client.cancel, client.retry, client.delete):
        with pytest.raises(mvprune.Conflict, match="not at 3") as caught:
            write("j1", etag="3")
        assert caught.value.reason == "ETAG_MISMATCH"


def test_a_cancel_that_is_bound_is_not_repeated(fake: Fake, client: Client) -> None:
    fake.answers["CancelJob"] = [_unavailable, lambda request, context: job("CANCELLED")]
    with pytest.raises(mvprune.ServerUnreachable):  # it may have been done: its repetition would find a new etag
        client.cancel("j1", etag="3")
    assert client.cancel("j1").state is JobState.CANCELLED


def test_where_the_address_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path))
    monkeypatch.delenv("MVPRUNE_ADDRESS", raising=False)
    assert Client().address == "127.0.0.1:7070"
    monkeypatch.setenv("MVPRUNE_ADDRESS", "host:1")
    assert Client().address == "host:1"
    assert Client("other:2").address == "other:2"


def test_a_user_without_a_home_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CONFIG_HOME", "MVPRUNE_ADDRESS", "MVPRUNE_CONFIG", "MVPRUNE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)  # no such user
    monkeypatch.chdir(tmp_path)
    assert Client().address == "127.0.0.1:7070"


def test_a_proxy_is_not_asked_for_this_machine(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    fake.answers["GetJob"] = lambda request, context: job()
    with Client(fake.address) as client:
        assert client.get("j1").id == "j1"


def test_exported_members() -> None:
    from mvprune.client import catalog, job, models, sweep, sweep_models, upload_models
    from mvprune.client import exceptions as job_exceptions
    from mvprune.client.blocking import job as blocking_job
    from mvprune.client.blocking import sweep as blocking_sweep
    from mvprune.common import exceptions
    from mvprune.spec import gate
    from mvprune.spec import models as spec_models

    public = {"AsyncClient", "Client", "ModelSize", "SubmitOptions", "load", "__version__"}
    public |= {"PolicyOptions", "RandomStrategy", "SearchStrategy", "SweepOptions", "TicketStrategy"}
    of_clients = (
        models,
        job,
        blocking_job,
        sweep,
        blocking_sweep,
        sweep_models,
        upload_models,
        catalog,
        job_exceptions,
    )
    for module in (*of_clients, spec_models, gate, exceptions):
        classes = {name: each for name, each in vars(module).items() if isinstance(each, type)}
        public |= {name for name, each in classes.items() if each.__module__ == module.__name__}
    assert set(mvprune.__all__) == public
    for name in set(mvprune.__all__) - {"load"}:
        assert getattr(mvprune, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mvprune.nothing
