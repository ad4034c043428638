"""AsyncClient: the surface of Client, over an event loop."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.client.scripted_server import NAME, Fake, always, echo, job, refuse, watch
from tests.waiting import PATIENCE, until_true

import mvprune
from mvprune import AsyncClient, AsyncJob, AsyncSweep, Client, Job, JobState, Sweep
from mvprune.client import transport
from mvprune.client.admin import AsyncAdmin
from mvprune.client.blocking.admin import Admin
from mvprune.v1 import job_pb2


@pytest.fixture
async def client(fake: Fake) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(fake.address) as one:
        yield one


def _surface(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def _blocking(annotation: str) -> str:
    """What a method of Client returns where that of AsyncClient returns this."""
    annotation = re.sub(r"AsyncGenerator\[(.*), None\]", r"Iterator[\1]", annotation)
    annotation = re.sub(r"\b(AnySweep|AsyncSweep)\b", "Sweep", annotation)
    return re.sub(r"\b(AnyJob|AsyncJob)\b", "Job", annotation).replace("AsyncAdmin", "Admin")


@pytest.mark.parametrize(
    ("kind", "other"), [(Client, AsyncClient), (Job, AsyncJob), (Sweep, AsyncSweep), (Admin, AsyncAdmin)]
)
def test_both_clients_have_the_same_surface(kind: type, other: type) -> None:
    first, second = _surface(kind), _surface(other)
    assert set(second) | {"address", "project"} == set(first) | {"address", "project"}
    for name, member in first.items():
        if not inspect.isfunction(member):
            continue
        ours, theirs = inspect.signature(member), inspect.signature(second[name])
        assert [str(one.replace(annotation="")) for one in theirs.parameters.values()] == [
            str(one.replace(annotation="")) for one in ours.parameters.values()
        ], name
        for parameter, theirs_too in zip(ours.parameters.values(), theirs.parameters.values(), strict=True):
            assert _blocking(str(theirs_too.annotation)) == str(parameter.annotation), (name, parameter.name)
        assert _blocking(theirs.return_annotation) == ours.return_annotation, name
        assert (inspect.getdoc(second[name]) or "").replace("AsyncClient", "Client") == inspect.getdoc(member), name
        assert inspect.iscoroutinefunction(second[name]) != theirs.return_annotation.startswith("AsyncGenerator"), name
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


async def test_from_submit_to_the_folder(fake: Fake, client: AsyncClient, succeeds: str, tmp_path: Path) -> None:
    submitted = await client.submit(model="m", task="sst2", density=0.03)
    assert isinstance(submitted, AsyncJob)
    states = [update.job.state async for update in submitted.watch()]
    assert states == [JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED]
    seen: list[AsyncJob] = []
    done = await submitted.wait(on_progress=seen.append)
    assert (done.state, len(seen)) == (JobState.SUCCEEDED, 4)
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    progress: list[tuple[int, int]] = []
    threads: set[int] = set()
    folder = await done.download(
        tmp_path / "out", lambda *at: (progress.append(at), threads.add(threading.get_ident()))
    )
    assert (folder / "weights.safetensors").read_bytes() == b"w" * 3000
    assert progress[-1][0] == progress[-1][1]
    assert threads == {threading.get_ident()}  # a callback may touch what belongs to the loop


async def test_reading_in_series(fake: Fake, client: AsyncClient) -> None:
    pages = {
        "": job_pb2.ListJobsResponse(jobs=[job(uid="1"), job(uid="2")], next_page_token="t"),
        "t": job_pb2.ListJobsResponse(jobs=[job(uid="3")]),
    }
    event = job_pb2.JobEvent(sequence=1, type="STATE_CHANGED")
    fake.answers |= {
        "ListJobs": lambda request, context: pages[request.page_token],
        "ListJobEvents": always(job_pb2.ListJobEventsResponse(events=[event])),
        "ListAttempts": always(job_pb2.ListAttemptsResponse(attempts=[job_pb2.Attempt(name=f"{NAME}/attempts/1")])),
        "ListMetrics": always(job_pb2.ListMetricsResponse(points=[job_pb2.MetricPoint(metric="loss")])),
    }
    assert [found.uid async for found in client.list()] == ["1", "2", "3"]
    assert [found.uid async for found in client.list(limit=2)] == ["1", "2"]
    assert [found.sequence async for found in client.events("j1")] == [1]
    assert [found.name async for found in client.attempts("j1")] == [f"{NAME}/attempts/1"]
    assert [found.metric async for found in client.metrics("j1")] == ["loss"]


async def test_a_watch_goes_on_after_a_cut(fake: Fake, client: AsyncClient) -> None:
    def cut(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield job_pb2.WatchJobResponse(sequence=4, job=job())
        context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    def rest(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield job_pb2.WatchJobResponse(sequence=5, job=job("SUCCEEDED"), done=True)

    fake.answers["WatchJob"] = [cut, rest]
    assert [update.sequence async for update in client.watch("j1")] == [4, 5]
    assert [request.after_sequence for request in fake.requests["WatchJob"]] == [0, 4]


async def test_errors_are_the_same(fake: Fake, client: AsyncClient) -> None:
    fake.answers["RetryJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.FAILED_PRECONDITION, "it runs", "WRONG_STATE"
    )
    with pytest.raises(mvprune.FailedPrecondition, match=r"^it runs$") as caught:
        await client.retry("j1")
    assert caught.value.reason == "WRONG_STATE"
    with pytest.raises(mvprune.InvalidArgument, match="must be one of movement"):
        await client.submit(model="m", density=0.5, method="l1")
    fake.answers["GetJob"] = always(job("FAILED", failure=job_pb2.Failure(reason="NAN_LOSS", message="too fast")))
    with pytest.raises(mvprune.JobFailed, match="NAN_LOSS: too fast"):
        await client.wait("j1")


async def test_a_call_is_repeated_only_where_that_is_safe(
    fake: Fake, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", PATIENCE)  # on a busy machine two repetitions take long

    def away(request: Any, context: grpc.ServicerContext) -> None:
        refuse(context, grpc.StatusCode.UNAVAILABLE, "the database is away", "DATABASE_UNAVAILABLE")

    fake.answers |= {"CreateJob": [away, away, echo], "DeleteJob": away}
    await client.submit(model="m", task="sst2", density=0.5)
    first, second, third = fake.requests["CreateJob"]
    assert first == second == third
    with pytest.raises(mvprune.ServerUnreachable):
        await client.delete("j1")
    assert len(fake.requests["DeleteJob"]) == 1


async def test_a_time_to_wait_and_a_deadline(fake: Fake) -> None:
    ended, late = threading.Event(), threading.Event()

    def silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield job_pb2.WatchJobResponse(sequence=1, job=job())
        ended.wait(PATIENCE)

    fake.answers |= {"GetJob": always(job()), "WatchJob": silent, "CancelJob": lambda *asked: late.wait(PATIENCE)}
    async with AsyncClient(fake.address) as client:
        with pytest.raises(mvprune.WaitTimeout, match=r"still RUNNING after 0\.3 s"):
            await client.wait("j1", timeout=0.3)
    async with AsyncClient(fake.address, timeout=0.2) as client:
        with pytest.raises(mvprune.ServerUnreachable, match=r"within 0\.2 s"):
            await client.cancel("j1")
        late.set()


@pytest.mark.parametrize("how", ["wait", "leave"])
async def test_a_stream_ends_with_its_reader(fake: Fake, client: AsyncClient, how: str) -> None:
    reached, ended = asyncio.Event(), threading.Event()

    def silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield job_pb2.WatchJobResponse(sequence=1, job=job())
        ended.wait(PATIENCE)

    fake.answers |= {"GetJob": always(job("QUEUED")), "WatchJob": silent}
    if how == "wait":
        waiting = asyncio.create_task(
            client.wait("j1", on_progress=lambda seen: reached.set() if seen.state == "RUNNING" else None)
        )
        await reached.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        async with aclosing(client.watch("j1")) as updates:
            async for _ in updates:
                break
    assert await asyncio.to_thread(ended.wait, PATIENCE)  # the server sees it end
    fake.answers["GetJob"] = always(job("SUCCEEDED"))
    assert (await client.wait("j1")).state is JobState.SUCCEEDED  # and the client lives on


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


async def test_a_cancelled_download_writes_nothing_more_and_can_go_on(
    fake: Fake, client: AsyncClient, tmp_path: Path
) -> None:
    name = fake.serve({"weights.safetensors": bytes(5000)})
    go_on = threading.Event()
    whole = fake.answers["ReadFile"]

    def stops_in_the_middle(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for chunk in whole(request, context):
            yield chunk
            if request.path == "weights.safetensors" and chunk.offset >= 2000:
                go_on.wait(PATIENCE)

    fake.answers["ReadFile"] = stops_in_the_middle
    downloading = asyncio.create_task(client.download(name, tmp_path / "out"))
    await until_true(lambda: _sizes(tmp_path).get("weights.safetensors", 0) >= 2000)
    downloading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await downloading
    go_on.set()
    before = _sizes(tmp_path)
    assert not (tmp_path / "out").exists()
    fake.answers["ReadFile"] = whole
    fake.requests.clear()
    await client.download(name, tmp_path / "out")
    (offset,) = [asked.offset for asked in fake.requests["ReadFile"] if asked.path == "weights.safetensors"]
    assert offset == before["weights.safetensors"] >= 2000
    assert _sizes(tmp_path).keys() == {"manifest.json", "weights.safetensors"}


async def test_many_at_once(fake: Fake, client: AsyncClient) -> None:
    fake.answers["GetJob"] = lambda request, context: job(uid=request.name)
    names = [f"j{number}" for number in range(50)]
    found = await asyncio.gather(*(client.get(name) for name in names))
    assert [each.uid for each in found] == [f"projects/default/jobs/{name}" for name in names]


async def test_after_the_end_the_client_says_so(fake: Fake) -> None:
    reached = asyncio.Event()

    def silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        ended = threading.Event()
        context.add_callback(ended.set)
        yield job_pb2.WatchJobResponse(sequence=1, job=job())
        ended.wait(PATIENCE)

    async def follow() -> None:
        async for _ in client.watch("j1"):
            reached.set()

    fake.answers["WatchJob"] = silent
    client = AsyncClient(fake.address)
    following = asyncio.create_task(follow())
    await reached.wait()
    await client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await following
    with pytest.raises(RuntimeError, match="the client is closed"):
        await client.get("j1")
    blocking = Client(fake.address)
    updates = blocking.watch("j1")
    next(updates)
    blocking.close()
    for use in (lambda: next(updates), lambda: blocking.get("j1")):
        with pytest.raises(RuntimeError, match="the client is closed"):
            use()


def test_it_may_be_made_before_the_loop(fake: Fake) -> None:
    fake.answers["GetJob"] = always(job())
    client = AsyncClient(fake.address)

    async def use() -> str:
        async with client:
            return (await client.get("j1")).id

    assert asyncio.run(use()) == "j1"


async def test_the_other_client_works_beside_a_loop(fake: Fake) -> None:
    fake.answers["WatchJob"] = watch(job("RUNNING"), job("SUCCEEDED"))
    with Client(fake.address) as client:  # as in a notebook: a loop runs in this thread
        updates = client.watch("j1")
        assert next(updates).job.state is JobState.RUNNING
        del updates
        assert len(list(client.watch("j1"))) == 2


def test_nothing_of_grpc_is_in_what_users_touch() -> None:
    shown = [str(inspect.signature(each)) for each in _surface(AsyncClient).values() if inspect.isfunction(each)]
    assert not re.search("grpc|pb2|torch", " ".join(shown))
