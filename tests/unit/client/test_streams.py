"""Client: watching, waiting and logs over connections that break."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.unit.client.scripted_server import NAME, Fake, job, refuse

import mvprune
from mvprune import Client, JobState
from mvprune.client import core, transport
from mvprune.v1 import job_pb2


def _update(sequence: int, state: str, *, done: bool = False, attempt: int = 1) -> job_pb2.WatchJobResponse:
    event = job_pb2.JobEvent(sequence=sequence, type="STATE_CHANGED", to_state=state)
    return job_pb2.WatchJobResponse(sequence=sequence, job=job(state, attempt=attempt), events=[event], done=done)


def _cut(context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAVAILABLE, "going away")


def _updates(*updates: job_pb2.WatchJobResponse, cut: bool = False) -> Any:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield from updates
        if cut:
            _cut(context)

    return answer


def _resumable(updates: list[job_pb2.WatchJobResponse]) -> Any:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield from (update for update in updates if update.sequence > request.after_sequence or update.done)

    return answer


def test_watch_goes_on_after_cuts_and_ends_at_done(fake: Fake, client: Client) -> None:
    fake.answers["WatchJob"] = [
        _updates(_update(1, "QUEUED"), _update(2, "STARTING"), cut=True),
        _updates(cut=True),
        _updates(_update(5, "RUNNING")),  # ends without done: cut as well
        _updates(_update(6, "SUCCEEDED", done=True)),
    ]
    updates = list(client.watch("j1"))
    assert [update.sequence for update in updates] == [1, 2, 5, 6]
    assert [event.sequence for update in updates for event in update.events] == [1, 2, 5, 6]
    assert [request.after_sequence for request in fake.requests["WatchJob"]] == [0, 2, 2, 5]
    assert updates[-1].done
    assert updates[-1].job.state is JobState.SUCCEEDED


@pytest.mark.parametrize("reason", ["SERVER_DRAINING", ""])
def test_a_stream_waits_for_a_server_that_says_that_it_stops(
    fake: Fake, client: Client, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS", 0.2)

    def refused(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if reason:
            refuse(context, grpc.StatusCode.UNAVAILABLE, "the server stops", reason)
        _cut(context)
        yield

    fake.answers["WatchJob"] = [*[refused] * 5, _updates(_update(1, "SUCCEEDED", done=True))]
    if reason:
        assert [update.sequence for update in client.watch("j1")] == [1]
    else:
        with pytest.raises(mvprune.ServerUnreachable):
            list(client.watch("j1"))


def test_watch_from_a_sequence_on(fake: Fake, client: Client) -> None:
    fake.answers["WatchJob"] = _updates(_update(9, "FAILED", done=True))
    assert len(list(client.watch("j1", after_sequence=8))) == 1
    assert fake.asked("WatchJob").after_sequence == 8


def test_watch_gives_up_when_the_server_stays_away(fake: Fake, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(transport, "RECONNECT_SECONDS", 8)  # of a clock that goes on by one with each look at it
    fake.answers["WatchJob"] = [_updates(_update(1, "QUEUED"), cut=True), _updates(cut=True)]
    with pytest.raises(mvprune.ServerUnreachable, match="going away"):
        list(client.watch("j1"))
    assert len(fake.requests["WatchJob"]) > 2


def test_watch_of_a_job_that_is_not_there(fake: Fake, client: Client) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        refuse(context, grpc.StatusCode.NOT_FOUND, "there is no j1")
        yield

    fake.answers["WatchJob"] = answer
    with pytest.raises(mvprune.NotFound):
        list(client.watch("j1"))
    assert len(fake.requests["WatchJob"]) == 1


def test_wait_returns_the_job_that_succeeded(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job("QUEUED")
    fake.answers["WatchJob"] = [
        _updates(_update(1, "QUEUED"), _update(2, "RUNNING"), cut=True),
        _updates(_update(3, "SUCCEEDED", done=True)),
    ]
    seen: list[JobState] = []

    def report(job: mvprune.Job) -> None:
        assert job.refresh().state is JobState.QUEUED  # calls may be made while the stream is open
        seen.append(job.state)

    done = client.get("j1").wait(on_progress=report)
    assert done.state is JobState.SUCCEEDED
    assert seen == [JobState.QUEUED, JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED]


def test_wait_raises_how_it_ended(fake: Fake, client: Client) -> None:
    failed = job("FAILED", failure=job_pb2.Failure(reason="NAN_LOSS", message="lower the learning rate"))
    fake.answers["GetJob"] = lambda request, context: job()
    fake.answers["WatchJob"] = _updates(job_pb2.WatchJobResponse(sequence=2, job=failed, done=True))
    with pytest.raises(mvprune.JobFailed, match="job j1 failed: NAN_LOSS: lower the learning rate") as caught:
        client.wait("j1")
    assert caught.value.job.state is JobState.FAILED
    fake.answers["WatchJob"] = _updates(_update(2, "CANCELLED", done=True))
    with pytest.raises(mvprune.JobCancelled, match="job j1 was cancelled"):
        client.wait("j1")


def test_wait_for_a_time(fake: Fake, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    for module in (core, transport):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))

    def until_time_is_up(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        nonlocal now
        yield _update(1, "RUNNING")
        now = 60.5
        _cut(context)

    fake.answers["GetJob"] = lambda request, context: job("QUEUED")
    fake.answers["WatchJob"] = until_time_is_up
    with pytest.raises(mvprune.WaitTimeout, match=r"job j1 is still RUNNING after 60\.5 s") as caught:
        client.wait("j1", timeout=60.5)
    assert caught.value.job.state is JobState.RUNNING


def test_no_time_is_enough_for_a_job_that_has_ended(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job("SUCCEEDED")
    assert client.wait("j1", timeout=0).state is JobState.SUCCEEDED
    assert "WatchJob" not in fake.requests


def _log(content: dict[str, bytes], *, cut_at: int = -1) -> Any:
    """The log of each attempt in pieces of 7 bytes; the first stream is cut at an offset."""
    cuts = [cut_at] if cut_at >= 0 else []

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        data = content[request.attempt.rpartition("/")[2]]
        for start in range(request.offset, len(data), 7):
            if cuts and start >= cuts[0]:
                cuts.clear()
                _cut(context)
            yield job_pb2.FollowLogsResponse(offset=start, data=data[start : start + 7])
        yield job_pb2.FollowLogsResponse(offset=len(data), end=True)

    return answer


def test_logs_go_on_after_a_cut_at_their_byte(fake: Fake, client: Client) -> None:
    text = bytes(range(256))
    fake.answers["GetJob"] = lambda request, context: job(attempt=2)
    fake.answers["FollowLogs"] = _log({"2": text}, cut_at=100)
    assert b"".join(client.logs("j1")) == text
    first, second = fake.requests["FollowLogs"]
    assert (first.attempt, first.offset, first.follow) == (f"{NAME}/attempts/2", 0, False)
    assert second.offset == 105


def test_logs_are_not_repeated_by_a_server_that_starts_over(fake: Fake, client: Client) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield job_pb2.FollowLogsResponse(offset=0, data=b"hello ")
        yield job_pb2.FollowLogsResponse(offset=3, data=b"lo world")
        yield job_pb2.FollowLogsResponse(offset=11, end=True)

    fake.answers["GetJob"] = lambda request, context: job()
    fake.answers["FollowLogs"] = answer
    assert b"".join(client.logs("j1")) == b"hello world"


def test_logs_of_a_job_without_an_attempt(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job("QUEUED", attempt=0)
    assert list(client.logs("j1")) == []


def test_followed_logs_wait_for_the_attempt_and_go_over_to_the_next(fake: Fake, client: Client) -> None:
    fake.answers["GetJob"] = lambda request, context: job("QUEUED", attempt=0)
    fake.answers["FollowLogs"] = _log({"1": b"first try\n", "2": b"second try\n"})
    fake.answers["WatchJob"] = [
        _resumable([_update(1, "QUEUED", attempt=0), _update(2, "STARTING", attempt=1)]),
        _resumable([_update(2, "STARTING", attempt=1), _update(4, "STARTING", attempt=2)]),
        _resumable([_update(9, "SUCCEEDED", attempt=2, done=True)]),
    ]
    assert b"".join(client.logs("j1", follow=True)) == b"first try\nsecond try\n"
    assert all(request.follow for request in fake.requests["FollowLogs"])
