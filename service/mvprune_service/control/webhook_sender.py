"""Sends events to webhooks.

The event's transaction has written what is to be sent: see db/outbox.py. Each webhook is claimed by one server at a
time, for longer than an attempt can take. It gets one delivery at a time, in order; the next one when the receiver has
answered 2xx. A server that is killed leaves its claims to others: what it sent and did not record is sent again, with
the same webhook-id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import webhooks
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.webhooks import WebhookRow
from mvprune_service.db.webhooks import Claim
from mvprune_service.domain.webhooks import Answer
from mvprune_service.notices import Notice, headers, render, secret
from mvprune_service.observability import metrics
from mvprune_service.outbound import Outbound

log = logging.getLogger(__name__)

_CLAIM_US = 30 * SECOND  # an attempt ends within 10 s; a server that is stopped or killed leaves its claims
_AT_ONCE, _OF_PROJECT = 32, 4  # webhooks that are sent to: those of a slow receiver leave room for others
_IN_A_ROW = 50  # deliveries of a webhook, before others have their turn
_LOOK_SECONDS = 0.5  # between looks for more while something is sent


class Courier:
    """Signs what webhooks get, and posts it."""

    def __init__(self, outbound: Outbound, key: bytes, clock: Clock = system_clock) -> None:
        self._outbound = outbound
        self._key = key
        self._clock = clock

    def secret(self, webhook: WebhookRow) -> str:
        """The present secret of a webhook."""
        return secret(self._key, webhook.uid, webhook.generation)

    async def send(self, webhook: WebhookRow, notice: Notice) -> Answer:
        """One attempt, which ends within 10 s."""
        kind, body = render(notice, webhook.format)
        secrets = [self.secret(webhook)]
        now = self._clock()
        if webhook.old_secret_until_us is not None and now < webhook.old_secret_until_us:
            secrets.append(secret(self._key, webhook.uid, webhook.generation - 1))
        signed = headers(secrets, notice.id, now, body)
        started = time.perf_counter()
        answer = await self._outbound.post(webhook.url, {"Content-Type": kind, "User-Agent": "mvprune", **signed}, body)
        metrics.webhook_answered(time.perf_counter() - started)
        return answer


class WebhookSender:
    """Sends what is due."""

    def __init__(self, db: Database, courier: Courier, clock: Clock = system_clock) -> None:
        self._db = db
        self._courier = courier
        self._clock = clock

    async def step(self) -> None:
        """One round: until nothing is due."""
        sending: dict[asyncio.Task[None], str] = {}  # to the project
        try:
            while True:
                await self._start(sending)
                if not sending:
                    return
                done, _ = await asyncio.wait(sending, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del sending[task]
                    task.result()
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _start(self, sending: dict[asyncio.Task[None], str]) -> None:
        room = _AT_ONCE - len(sending)
        if room <= 0 or not await self._db.look_up(webhooks.has_due, self._clock()):
            return
        counts = Counter(sending.values())
        busy = [project for project, count in counts.items() if count >= _OF_PROJECT]
        for claimed in await self._db.write(webhooks.claim, min(room, _OF_PROJECT), _CLAIM_US, busy):
            sending[asyncio.create_task(self._send(claimed))] = claimed.webhook.project

    async def _send(self, claimed: Claim) -> None:
        following: Claim | None = claimed
        for _ in range(_IN_A_ROW):
            if following is None:
                return
            webhook, delivery = following
            notice = Notice(delivery.event_id, delivery.type, delivery.subject, delivery.create_us, delivery.data)
            answer = await self._courier.send(webhook, notice)
            recorded = await self._db.write(webhooks.record, following, answer, _CLAIM_US)
            if recorded.state is not None:
                metrics.webhook_tried(recorded.state.value)
            if recorded.disabled:
                log.warning("%s is disabled: %s", webhook.name, recorded.disabled)
            following = recorded.next
        if following is not None:
            await self._db.write(webhooks.release, following)
