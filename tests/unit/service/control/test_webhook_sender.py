"""Events to receivers, on both databases: what is written with an event, and how it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any

import grpc
import pytest
from sqlalchemy import select
from tests.receiver import Receiver, receiving
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock
from tests.unit.service.sweeps.gym import Gym

from mvprune.v1 import job_pb2, sweep_pb2, webhook_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.webhooks import WebhookServicer
from mvprune_service.clock import SECOND
from mvprune_service.control import webhook_sender
from mvprune_service.control.webhook_sender import Courier, WebhookSender
from mvprune_service.db import lifecycle, webhooks
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.webhooks import DELIVERIES
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import Command
from mvprune_service.domain.webhooks import Answer
from mvprune_service.ids import JobName
from mvprune_service.notices import headers
from mvprune_service.outbound import Outbound

CONTEXT: Any = None
DAY = 86_400


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


class Plane:
    """Webhooks of a database."""

    def __init__(self, db: Database, clock: TestClock, receiver: Receiver) -> None:
        self.db, self.clock, self.receiver = db, clock, receiver
        outbound = Outbound([ip_network("127.0.0.0/8")])
        self.courier = Courier(outbound, b"k" * 32, clock)
        self.api = WebhookServicer(db, outbound, self.courier, clock)
        self.sender = WebhookSender(db, self.courier, clock)

    async def create(self, webhook_id: str = "w", *events: str, project: str = "p", **fields: Any) -> str:
        """Returns the secret."""
        given = {"url": self.receiver.url, "events": events or ["job.*"], **fields}
        request = webhook_pb2.CreateWebhookRequest(
            parent=f"projects/{project}", webhook_id=webhook_id, webhook=webhook_pb2.Webhook(**given)
        )
        return (await self.api.CreateWebhook(request, CONTEXT)).secret

    async def get(self, webhook_id: str = "w") -> webhook_pb2.Webhook:
        name = f"projects/p/webhooks/{webhook_id}"
        return await self.api.GetWebhook(webhook_pb2.GetWebhookRequest(name=name), CONTEXT)

    async def deliveries(self, webhook_id: str = "w", **request: Any) -> list[webhook_pb2.WebhookDelivery]:
        """The oldest first."""
        parent = f"projects/p/webhooks/{webhook_id}"
        answer = await self.api.ListDeliveries(webhook_pb2.ListDeliveriesRequest(parent=parent, **request), CONTEXT)
        return list(answer.deliveries)[::-1]

    async def states(self) -> list[str]:
        return [webhook_pb2.WebhookDelivery.State.Name(one.state) for one in await self.deliveries()]

    async def move(self, command: Command, job_id: str = "a", **values: Any) -> None:
        def work(tx: Tx) -> None:
            job = lifecycle.lock_job_named(tx, JobName("p", job_id))
            assert job is not None
            lifecycle.move(tx, job, command, "test", {}, **values)

        await self.db.write(work)

    async def write(self, work: Callable[..., Any], *args: Any) -> Any:
        return await self.db.write(work, *args)


@pytest.fixture
def plane(db: Database, clock: TestClock, receiver: Receiver) -> Plane:
    return Plane(db, clock, receiver)


def types(receiver: Receiver) -> list[str]:
    return [got.event["type"].removeprefix("dev.mvprune.").removesuffix(".v1") for got in receiver.got]


async def test_a_job_is_told_of_in_order_signed_and_once(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    secret = await plane.create("w", "job.created", "job.failed")
    uid = await jobs.create()
    await plane.move(Command.SCHEDULE)
    await plane.move(Command.CLAIM)
    await plane.write(_fail)
    await jobs.create("other")
    await plane.sender.step()
    assert types(receiver) == ["job.created", "job.failed", "job.created"]
    failed = receiver.got[1]
    assert failed.event["id"] == failed.headers["webhook-id"] == f"{uid}-4"
    assert failed.event["data"] | {"uid": ""} == {
        "name": "projects/p/jobs/a",
        "uid": "",
        "display_name": "",
        "state": "FAILED",
        "from_state": "RUNNING",
        "reason": "WORKER_LOST",
        "sequence": 4,
        "attempt": 0,
        "task": "sst2",
        "sweep": None,
    }
    at = int(failed.headers["webhook-timestamp"])
    assert (
        failed.headers["webhook-signature"]
        == headers([secret], failed.headers["webhook-id"], at * SECOND, failed.body)["webhook-signature"]
    )
    assert abs(at - plane.clock() / SECOND) < 2
    assert await plane.states() == ["DELIVERED"] * 3
    assert (await plane.get()).pending == 0
    await plane.sender.step()
    assert len(receiver.got) == 3


def _fail(tx: Tx) -> None:
    job = lifecycle.lock_job_named(tx, JobName("p", "a"))
    assert job is not None
    lifecycle.fail(tx, job, FailureReason.WORKER_LOST, actor="test")


async def test_a_result_is_told_as_far_as_it_is_a_number(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    await plane.create("w", "job.succeeded")
    for job_id, difference in (("a", -0.01), ("b", float("nan"))):
        await jobs.create(job_id)
        for command in (Command.SCHEDULE, Command.CLAIM, Command.OFFER):
            await plane.move(command, job_id)
        await plane.move(Command.PUBLISH, job_id, primary_metric="f1", metric=0.5, difference=difference)
    await plane.sender.step()
    told = [got.event["data"] for got in receiver.got]
    assert [(one["primary_metric"], one["metric"], one.get("difference")) for one in told] == [
        ("f1", 0.5, -0.01),
        ("f1", 0.5, None),
    ]


async def test_an_event_that_is_rolled_back_is_not_sent(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    await plane.create()

    def work(tx: Tx) -> None:
        spec = job_pb2.CompressionSpec(model="m", task="sst2")
        lifecycle.create(tx, lifecycle.NewJob("p", "a", spec, job_pb2.ExecutionPolicy(), creator="x"), actor="x")
        assert tx.conn.execute(select(DELIVERIES.c.event_id)).all()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await plane.db.write(work)
    await plane.sender.step()
    assert receiver.got == []


async def test_who_hears_what(plane: Plane, receiver: Receiver) -> None:
    await plane.create("labelled", labels={"team": "red"})
    await plane.create("sweeps", "sweep.*")
    await plane.create("elsewhere", project="q")
    await plane.create("disabled", state="DISABLED")

    def work(tx: Tx) -> None:
        spec, policy = job_pb2.CompressionSpec(model="m", task="sst2"), job_pb2.ExecutionPolicy()
        for job_id, team in (("a", "red"), ("b", "blue")):
            new = lifecycle.NewJob("p", job_id, spec, policy, creator="x", labels={"team": team})
            lifecycle.create(tx, new, actor="x")

    await plane.db.write(work)
    await plane.sender.step()
    assert [got.event["subject"] for got in receiver.got] == ["projects/p/jobs/a"]


async def test_a_sweep_is_told_of(plane: Plane, executor: ScriptedExecutor, receiver: Receiver) -> None:
    await plane.create("w", "sweep.*", "job.cancelled", labels={"team": "red"})
    gym = Gym(plane.db, executor)
    await gym.create(axes=[{"parameter": "density", "values": [0.1, 0.2]}], labels={"team": "red"})
    name = "projects/p/sweeps/s"
    await gym.servicer.PauseSweep(sweep_pb2.PauseSweepRequest(name=name), CONTEXT)
    await gym.servicer.ResumeSweep(sweep_pb2.ResumeSweepRequest(name=name), CONTEXT)
    await gym.servicer.CancelSweep(sweep_pb2.CancelSweepRequest(name=name), CONTEXT)
    await gym.controller.step()
    await plane.sender.step()
    assert types(receiver) == [f"sweep.{one}" for one in ("created", "paused", "resumed", "cancelled")]
    assert [got.event["data"]["sequence"] for got in receiver.got] == sorted(
        got.event["data"]["sequence"] for got in receiver.got
    )
    assert receiver.got[-1].event["data"]["state"] == "CANCELLED"
    assert {got.event["subject"] for got in receiver.got} == {name}


async def test_a_failure_is_tried_again_later_and_holds_up_what_comes_after(
    plane: Plane, jobs: Jobs, receiver: Receiver
) -> None:
    await plane.create()
    await jobs.create()
    await jobs.create("b")
    receiver.answer = lambda got: 503
    await plane.sender.step()
    assert len(receiver.got) == 1
    seen = await plane.get()
    assert (seen.failures, seen.pending) == (1, 2)
    assert seen.next_attempt_time.ToMicroseconds() - plane.clock() == pytest.approx(5 * SECOND, abs=1000)
    plane.clock.pass_seconds(4.9)
    await plane.sender.step()
    assert len(receiver.got) == 1
    plane.clock.pass_seconds(0.2)
    await plane.sender.step()
    plane.clock.pass_seconds(29)
    await plane.sender.step()
    assert len(receiver.got) == 2
    plane.clock.pass_seconds(2)
    receiver.answer = lambda got: 200
    await plane.sender.step()
    first, second = receiver.got[0], receiver.got[3]
    assert [got.headers["webhook-id"] for got in receiver.got[:3]] == [first.headers["webhook-id"]] * 3
    assert second.headers["webhook-id"] != first.headers["webhook-id"]
    # A replay of an older request is recognized: each attempt has a time and a signature of its own.
    assert len({(got.headers["webhook-timestamp"], got.headers["webhook-signature"]) for got in receiver.got[:3]}) == 3
    assert [(one.attempts, one.status, one.error) for one in await plane.deliveries()] == [(3, 200, ""), (1, 200, "")]
    assert (await plane.get()).failures == 0


async def test_after_three_days_an_event_is_given_up_and_can_be_sent_by_hand(
    plane: Plane, jobs: Jobs, receiver: Receiver
) -> None:
    await plane.create()
    await jobs.create()
    await jobs.create("b")
    receiver.answer = lambda got: 500
    await plane.sender.step()
    plane.clock.pass_seconds(3 * DAY)
    await plane.sender.step()
    assert await plane.states() == ["FAILED", "FAILED"]
    assert len(receiver.got) == 2
    receiver.answer = lambda got: 200
    first, _ = await plane.deliveries()
    again = await plane.api.RedeliverDelivery(webhook_pb2.RedeliverDeliveryRequest(name=first.name), CONTEXT)
    assert again.state == webhook_pb2.WebhookDelivery.PENDING
    await plane.sender.step()
    assert await plane.states() == ["DELIVERED", "FAILED"]
    assert receiver.got[2].headers["webhook-id"] == first.name.rpartition("/")[2]
    assert [one.name for one in await plane.deliveries(state="DELIVERED")] == [first.name]
    assert await plane.write(webhooks.prune, plane.clock(), 1) == 1
    assert await plane.write(webhooks.prune, plane.clock(), 5) == 1
    assert await plane.deliveries() == []


async def test_gone_disables(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    await plane.create()
    await jobs.create()
    await jobs.create("b")
    receiver.answer = lambda got: 410
    await plane.sender.step()
    await jobs.create("c")
    await plane.sender.step()
    seen = await plane.get()
    assert (seen.state, seen.state_reason) == (webhook_pb2.Webhook.DISABLED, "the receiver answered 410 (Gone)")
    assert await plane.states() == ["FAILED", "PENDING"]
    receiver.answer = lambda got: 200
    request = webhook_pb2.UpdateWebhookRequest(name=seen.name, webhook={"state": "ENABLED"}, etag=seen.etag)
    request.update_mask.paths.append("state")
    enabled = await plane.api.UpdateWebhook(request, CONTEXT)
    assert (enabled.state, enabled.state_reason) == (webhook_pb2.Webhook.ENABLED, "")
    assert (enabled.url, list(enabled.events)) == (receiver.url, ["job.*"])
    await plane.sender.step()
    assert [got.event["subject"][-1] for got in receiver.got] == ["a", "b"]
    with pytest.raises(ApiError, match="has changed"):
        await plane.api.UpdateWebhook(request, CONTEXT)


async def test_two_servers_send_to_a_webhook_one_at_a_time(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    await plane.create()
    for number in range(6):
        await jobs.create(f"j{number}")
    receiver.answer = lambda got: (
        lambda handler: (asyncio.run(asyncio.sleep(0.02)), handler.send_response(204))[1] or (handler.end_headers())
    )
    other = WebhookSender(plane.db, plane.courier, plane.clock)
    await asyncio.gather(plane.sender.step(), other.step())
    assert [got.event["subject"][-1] for got in receiver.got] == [*"012345"]
    assert receiver.most_at_once == 1


async def test_what_a_killed_server_had_begun_is_sent_by_another(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    await plane.create()
    await jobs.create()
    (claimed,) = await plane.write(webhooks.claim, 4, 60 * SECOND, ())
    await plane.sender.step()
    assert receiver.got == []
    plane.clock.pass_seconds(61)
    await plane.sender.step()
    assert len(receiver.got) == 1
    late = await plane.write(webhooks.record, claimed, Answer(500, "late"), 60 * SECOND)
    assert late.state is None
    assert await plane.states() == ["DELIVERED"]


async def test_a_webhook_lets_others_have_their_turn(
    plane: Plane, jobs: Jobs, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_sender, "_IN_A_ROW", 2)
    await plane.create()
    for number in range(5):
        await jobs.create(f"j{number}")
    await plane.sender.step()
    assert len(receiver.got) == 5


async def test_both_secrets_sign_while_one_is_rotated(plane: Plane, jobs: Jobs, receiver: Receiver) -> None:
    old = await plane.create()
    request = webhook_pb2.RotateWebhookSecretRequest(name="projects/p/webhooks/w", old_ttl={"seconds": 60})
    rotated = await plane.api.RotateWebhookSecret(request, CONTEXT)
    new = rotated.secret
    assert new != old
    test = webhook_pb2.TestWebhookRequest(name="projects/p/webhooks/w")
    for expected in ([new, old], [new]):
        assert (await plane.api.TestWebhook(test, CONTEXT)).state == webhook_pb2.WebhookDelivery.DELIVERED
        got = receiver.got[-1]
        at = int(got.headers["webhook-timestamp"]) * SECOND
        assert {key: got.headers[key] for key in got.headers if key.startswith("webhook-")} == headers(
            expected, got.headers["webhook-id"], at, got.body
        )
        plane.clock.pass_seconds(61)
    assert types(receiver) == ["webhook.test"] * 2
    receiver.answer = lambda got: 302
    failed = await plane.api.TestWebhook(test, CONTEXT)
    assert (failed.status, failed.error) == (302, "HTTP 302: redirects are not followed")
    assert await plane.deliveries() == []


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("fields", "violation"),
    [
        ({"events": []}, "webhook.events"),
        ({"events": ["job.*", "job.success"]}, "webhook.events[1]"),
        ({"url": "https://169.254.169.254/latest"}, "webhook.url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "webhook.url"),
        ({"url": "ftp://hooks.example/"}, "webhook.url"),
    ],
)
async def test_webhooks_that_cannot_be_made(plane: Plane, fields: dict[str, Any], violation: str) -> None:
    given = webhook_pb2.Webhook(**{"url": plane.receiver.url, "events": ["job.*"], **fields})
    request = webhook_pb2.CreateWebhookRequest(parent="projects/p", webhook=given)
    with pytest.raises(ApiError) as caught:
        await plane.api.CreateWebhook(request, CONTEXT)
    assert [one.field for one in caught.value.violations] == [violation]
    assert "must " in caught.value.message


async def test_names_pages_and_ends(plane: Plane) -> None:
    await plane.create("w")
    with pytest.raises(ApiError) as caught:
        await plane.create("w")
    assert caught.value.code is grpc.StatusCode.ALREADY_EXISTS
    for number in range(19):
        await plane.create(f"w{number}")
    with pytest.raises(ApiError) as caught:
        await plane.create("w20")
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    names: list[str] = []
    request = webhook_pb2.ListWebhooksRequest(parent="projects/p", page_size=9)
    while True:
        page = await plane.api.ListWebhooks(request, CONTEXT)
        names += [one.name.rpartition("/")[2] for one in page.webhooks]
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    assert names == [*(f"w{number}" for number in range(18, -1, -1)), "w"]
    await plane.api.DeleteWebhook(webhook_pb2.DeleteWebhookRequest(name="projects/p/webhooks/w"), CONTEXT)
    for call in (
        plane.get(),
        plane.deliveries(),
        plane.api.DeleteWebhook(webhook_pb2.DeleteWebhookRequest(name="projects/p/webhooks/w"), CONTEXT),
        plane.api.RedeliverDelivery(
            webhook_pb2.RedeliverDeliveryRequest(name="projects/p/webhooks/w1/deliveries/x"), CONTEXT
        ),
    ):
        with pytest.raises(ApiError) as caught:
            await call
        assert caught.value.code is grpc.StatusCode.NOT_FOUND
