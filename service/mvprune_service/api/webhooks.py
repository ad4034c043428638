"""WebhookService: which URLs receive events, and what was sent to them."""

from __future__ import annotations

from typing import Any

import grpc
from grpc.aio import ServicerContext as Context
from sqlalchemy.exc import IntegrityError

from mvprune.common.identifiers import ID_PATTERN, ID_RULE
from mvprune.common.suggestions import must_be_one_of
from mvprune.v1 import webhook_pb2, webhook_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError, Violation, bad, etag_mismatch, finding, invalid
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.names import existing, parse_parent, parse_webhook, parsed
from mvprune_service.api.messages.pagination import make_page, page_size, read_token
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.webhook_sender import Courier
from mvprune_service.db import webhooks
from mvprune_service.db.engine.database import Database
from mvprune_service.db.lifecycle import EtagMismatch
from mvprune_service.db.tables.webhooks import DeliveryRow, WebhookRow
from mvprune_service.domain.webhooks import (
    EVENT_TYPES,
    TEST_TYPE,
    DeliveryState,
    WebhookFormat,
    WebhookState,
    full_type,
)
from mvprune_service.ids import new_uid
from mvprune_service.notices import Notice
from mvprune_service.outbound import BadUrl, Forbidden, Outbound

_CHANGEABLE = ("display_name", "url", "events", "labels", "format", "state")
_OLD_SECONDS, _LONGEST_OLD_SECONDS = 86_400, 7 * 86_400


class WebhookServicer(webhook_pb2_grpc.WebhookServiceServicer):
    """Manages webhooks; `courier` sends tests."""

    def __init__(self, db: Database, outbound: Outbound, courier: Courier, clock: Clock = system_clock) -> None:
        self._db = db
        self._outbound = outbound
        self._courier = courier
        self._clock = clock

    async def CreateWebhook(
        self, request: webhook_pb2.CreateWebhookRequest, context: Context
    ) -> webhook_pb2.CreateWebhookResponse:
        project = parse_parent(request.parent)
        if request.webhook_id and not ID_PATTERN.fullmatch(request.webhook_id):
            raise invalid(bad("webhook_id", request.webhook_id, ID_RULE))
        name = ids.WebhookName(project, request.webhook_id or ids.new_webhook_id())
        values = await self._values(request.webhook, _CHANGEABLE)
        try:
            row = await self._db.write(webhooks.create, name, values, creator=current_principal().id)
        except (webhooks.WebhookExists, IntegrityError):
            raise ApiError(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", f"{name} exists already") from None
        except webhooks.TooManyWebhooks as error:
            message = f"projects/{project} has {error.limit} webhooks, which is the most; delete one"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", message) from None
        return webhook_pb2.CreateWebhookResponse(webhook=_webhook(row, 0), secret=self._courier.secret(row))

    async def GetWebhook(self, request: webhook_pb2.GetWebhookRequest, context: Context) -> webhook_pb2.Webhook:
        return await self._shown(await self._row(parse_webhook(request.name)))

    async def ListWebhooks(
        self, request: webhook_pb2.ListWebhooksRequest, context: Context
    ) -> webhook_pb2.ListWebhooksResponse:
        project, size = parse_parent(request.parent), page_size(request.page_size)
        key: Any = read_token(request.page_token, int, str)
        rows = await self._db.read(webhooks.page, project, key, size + 1)
        waiting = await self._db.read(webhooks.pending_of, [row.uid for row in rows])
        listed, token = make_page(
            rows, size, lambda row: _webhook(row, waiting.get(row.uid, 0)), lambda row: (row.create_us, row.uid)
        )
        return webhook_pb2.ListWebhooksResponse(webhooks=listed, next_page_token=token)

    async def UpdateWebhook(self, request: webhook_pb2.UpdateWebhookRequest, context: Context) -> webhook_pb2.Webhook:
        name, fields = parse_webhook(request.name), tuple(request.update_mask.paths)
        if not fields or set(fields) - set(_CHANGEABLE):
            given = ", ".join(fields) or "none"
            raise invalid(bad("update_mask", given, f"some of {', '.join(_CHANGEABLE)}"))
        values = await self._values(request.webhook, fields)
        try:
            row = await self._db.write(finding(name, webhooks.change), name, values, etag=request.etag)
        except EtagMismatch:
            raise etag_mismatch(name) from None
        return await self._shown(row)

    async def DeleteWebhook(
        self, request: webhook_pb2.DeleteWebhookRequest, context: Context
    ) -> webhook_pb2.DeleteWebhookResponse:
        name = parse_webhook(request.name)
        try:
            await self._db.write(finding(name, webhooks.remove), name, etag=request.etag)
        except EtagMismatch:
            raise etag_mismatch(name) from None
        return webhook_pb2.DeleteWebhookResponse()

    async def TestWebhook(
        self, request: webhook_pb2.TestWebhookRequest, context: Context
    ) -> webhook_pb2.WebhookDelivery:
        row = await self._row(parse_webhook(request.name))
        now = self._clock()
        notice = Notice(f"{new_uid(now)}-0", TEST_TYPE, str(row.name), now, {"name": str(row.name)})
        answer = await self._courier.send(row, notice)
        return webhook_pb2.WebhookDelivery(
            name=str(ids.DeliveryName(*row.name, notice.id)),
            type=full_type(TEST_TYPE),
            subject=notice.subject,
            state=(DeliveryState.DELIVERED if answer.is_success else DeliveryState.FAILED).value,
            attempts=1,
            status=answer.status,
            error=answer.error,
            create_time=mapping.timestamp(now),
            attempt_time=mapping.timestamp(self._clock()),
        )

    async def RotateWebhookSecret(
        self, request: webhook_pb2.RotateWebhookSecretRequest, context: Context
    ) -> webhook_pb2.RotateWebhookSecretResponse:
        name, seconds = parse_webhook(request.name), float(_OLD_SECONDS)
        if request.HasField("old_ttl"):
            seconds = request.old_ttl.seconds + request.old_ttl.nanos / 1e9
        if not 0 <= seconds <= _LONGEST_OLD_SECONDS:
            raise invalid(Violation("old_ttl", f"must be 0 s to 7 days, got {seconds:g} s"))
        row = await self._db.write(finding(name, webhooks.rotate), name, old_us=round(seconds * SECOND))
        secret = self._courier.secret(row)
        return webhook_pb2.RotateWebhookSecretResponse(webhook=await self._shown(row), secret=secret)

    async def ListDeliveries(
        self, request: webhook_pb2.ListDeliveriesRequest, context: Context
    ) -> webhook_pb2.ListDeliveriesResponse:
        size = page_size(request.page_size)
        name = parse_webhook(request.parent, "parent")
        row = await self._row(name)
        state = DeliveryState(webhook_pb2.WebhookDelivery.State.Name(request.state)) if request.state else None
        key: Any = read_token(request.page_token, int, str)
        rows = await self._db.read(webhooks.page_of_deliveries, row.uid, key, size + 1, state)
        listed, token = make_page(
            rows, size, lambda one: _delivery(one, name), lambda one: (one.create_us, one.event_id)
        )
        return webhook_pb2.ListDeliveriesResponse(deliveries=listed, next_page_token=token)

    async def RedeliverDelivery(
        self, request: webhook_pb2.RedeliverDeliveryRequest, context: Context
    ) -> webhook_pb2.WebhookDelivery:
        rule = "projects/PROJECT/webhooks/WEBHOOK/deliveries/EVENT"
        name = parsed(ids.parse_delivery(request.name), request.name, rule)
        row = await self._db.write(finding(name, webhooks.redeliver), name)
        return _delivery(row, ids.WebhookName(name.project, name.webhook))

    async def _row(self, name: ids.WebhookName) -> WebhookRow:
        return existing(await self._db.read(webhooks.webhook_named, name), name)

    async def _shown(self, row: WebhookRow) -> webhook_pb2.Webhook:
        waiting = await self._db.read(webhooks.pending_of, [row.uid])
        return _webhook(row, waiting.get(row.uid, 0))

    async def _values(self, given: webhook_pb2.Webhook, fields: tuple[str, ...]) -> dict[str, Any]:
        """The columns for these fields. Raises ApiError with all that is wrong."""
        values: dict[str, Any] = {
            "display_name": given.display_name,
            "url": given.url,
            "events": sorted(set(given.events)),
            "labels": dict(given.labels),
            "format": WebhookFormat(webhook_pb2.Webhook.Format.Name(given.format or webhook_pb2.Webhook.CLOUDEVENTS)),
            "state": WebhookState(webhook_pb2.Webhook.State.Name(given.state or webhook_pb2.Webhook.ENABLED)),
        }
        wrong = []
        if "events" in fields and not given.events:
            wrong.append(Violation("webhook.events", "must be one event or more, got none"))
        if "events" in fields:
            unknown = [(at, one) for at, one in enumerate(given.events) if one not in EVENT_TYPES]
            wrong += [Violation(f"webhook.events[{at}]", must_be_one_of(EVENT_TYPES, one)) for at, one in unknown]
        if "url" in fields:
            try:
                await self._outbound.check(given.url)
            except BadUrl as error:
                wrong.append(Violation("webhook.url", f"must be {error}"))
            except Forbidden as error:
                wrong.append(Violation("webhook.url", f"must lead to an allowed address; {error}"))
        if wrong:
            raise invalid(*wrong)
        return {field: values[field] for field in fields}


def _webhook(row: WebhookRow, pending: int) -> webhook_pb2.Webhook:
    webhook = webhook_pb2.Webhook(
        name=str(row.name),
        display_name=row.display_name,
        url=row.url,
        events=row.events,
        labels=row.labels,
        format=row.format.value,
        state=row.state.value,
        state_reason=row.state_reason,
        creator=row.creator,
        create_time=mapping.timestamp(row.create_us),
        update_time=mapping.timestamp(row.update_us),
        etag=str(row.version),
        pending=pending,
        failures=row.failures,
    )
    if row.failures and row.due_us and pending:
        webhook.next_attempt_time.CopyFrom(mapping.timestamp(row.due_us))
    if row.old_secret_until_us is not None:
        webhook.old_secret_expire_time.CopyFrom(mapping.timestamp(row.old_secret_until_us))
    return webhook


def _delivery(row: DeliveryRow, webhook: ids.WebhookName) -> webhook_pb2.WebhookDelivery:
    delivery = webhook_pb2.WebhookDelivery(
        name=str(row.name(webhook)),
        type=full_type(row.type),
        subject=row.subject,
        state=row.state.value,
        attempts=row.attempts,
        status=row.status,
        error=row.error,
        create_time=mapping.timestamp(row.create_us),
    )
    if row.attempt_us is not None:
        delivery.attempt_time.CopyFrom(mapping.timestamp(row.attempt_us))
    return delivery
