"""A receiver of webhooks, and what must be true of what is sent to it."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mvprune_service.domain.machine import TERMINAL
from mvprune_service.domain.webhooks import Answer, DeliveryState
from mvprune_service.notices import secret

from .servers import KEY
from .snapshot import Snapshot
from .wire import CURRENT, Wire

URL = "http://127.0.0.1:9/hook"
_SECONDS = 10.0  # until an answer must have come
_UNREACHED = Answer(None, "no answer")


class _Got(NamedTuple):
    """An event that has arrived."""

    subject: str
    sequence: int


class Receiver:
    """Takes what is sent to one webhook. It is slow, fails and loses answers, as networks do.

    Args:
        look: the rows as they are now.

    Attributes:
        away: whether it cannot be reached.
        is_well: whether it takes everything.
    """

    def __init__(self, wire: Wire, look: Callable[[], Snapshot]) -> None:
        self._wire = wire
        self._look = look
        self.away = self.is_well = False
        self._got: dict[str, _Got] = {}  # by event id, in the order of the first arrival
        self._expected: set[str] = set()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """In place of `Outbound.post`: one attempt, which ends in time."""
        assert url == URL
        answer: asyncio.Future[Answer] = self._wire.loop.create_future()

        def take() -> Answer:
            if self.away:
                return _UNREACHED
            if not self.is_well and CURRENT.get().chance.random() < 0.1:
                return Answer(503, "HTTP 503")
            self._take(headers, body)
            return Answer(204)

        def done(result: Any, error: BaseException | None) -> None:
            if not answer.done():
                answer.set_result(_UNREACHED if error else result)

        self._wire.perform("post", f"webhook {headers['webhook-id']}", take, done, ConnectionError)
        try:
            async with asyncio.timeout(_SECONDS):
                return await answer
        except TimeoutError:
            return _UNREACHED

    def _take(self, headers: Mapping[str, str], body: bytes) -> None:
        name, at = headers["webhook-id"], headers["webhook-timestamp"]
        (webhook,) = self._look().webhooks
        key = base64.b64decode(secret(KEY, webhook.uid, webhook.generation).removeprefix("whsec_"))
        seal = base64.b64encode(hmac.digest(key, f"{name}.{at}.".encode() + body, "sha256")).decode()
        assert f"v1,{seal}" in headers["webhook-signature"].split(" "), f"{name} is not signed"
        event = json.loads(body)
        assert event["id"] == name
        if name in self._got:
            return
        got = _Got(event["subject"] + event["data"]["uid"], event["data"]["sequence"])
        later = [one for one in self._got.values() if one.subject == got.subject and one.sequence > got.sequence]
        assert not later, f"{name} arrives after {later}"
        self._got[name] = got

    def check(self, before: Snapshot, after: Snapshot) -> None:
        """What must be true of a change: an event and its delivery come together, and none counts as delivered that has
        not arrived."""
        rows = {row.event_id: row for row in after.deliveries}
        if before.webhooks:
            for uid, events in after.events.items():
                new = events[len(before.events.get(uid, ())) :]
                self._expected |= {f"{uid}-{one.sequence}" for one in new if _is_told(one)}
            lost = self._expected - rows.keys() - {row.event_id for row in before.deliveries} - self._got.keys()
            assert not lost, f"nothing is to be sent for {sorted(lost)}"
        for name, row in rows.items():
            if row.state == DeliveryState.DELIVERED:
                assert name in self._got, f"{name} counts as delivered, and has not arrived"
            assert row.state != DeliveryState.FAILED, f"{name} is given up"

    def unfinished(self) -> list[str]:
        """What has not arrived."""
        waiting = {row.event_id for row in self._look().deliveries if row.state == DeliveryState.PENDING}
        return [f"{name} has not arrived" for name in sorted(waiting | self._expected - self._got.keys())]


def _is_told(event: Any) -> bool:
    """Whether webhooks hear of an event of a job."""
    return event.from_state != event.to_state and (event.from_state is None or event.to_state in TERMINAL)
