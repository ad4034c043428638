"""Webhooks. `Webhooks` is made of `AsyncWebhooks`: see scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mvprune.client.convert import fields_of, same_fields
from mvprune.client.pages import listed
from mvprune.client.transport import Transport
from mvprune.common.exceptions import bad_field
from mvprune.common.suggestions import must_be_one_of
from mvprune.v1 import webhook_pb2

_FORMATS = ("cloudevents", "slack")
_STATES = ("pending", "delivered", "failed")


@dataclass(frozen=True)
class Webhook:
    """A URL that receives events, without its secret.

    Attributes:
        events: types that are sent, such as job.succeeded or sweep.*.
        labels: that a job or sweep must have.
        format: cloudevents or slack.
        state: enabled or disabled.
        state_reason: why the server disabled it.
        pending: deliveries that wait.
        failures: attempts that failed in a row.
        next_attempt_time: set after an attempt that failed.
        old_secret_expire_time: until then the secret before the present one signs too.
    """

    id: str
    name: str
    display_name: str
    url: str
    events: tuple[str, ...]
    labels: Mapping[str, str]
    format: str
    state: str
    state_reason: str
    pending: int
    failures: int
    next_attempt_time: datetime | None
    old_secret_expire_time: datetime | None
    creator: str
    create_time: datetime | None
    update_time: datetime | None
    etag: str


@dataclass(frozen=True)
class NewWebhook(Webhook):
    """A webhook with a new secret, which cannot be read again."""

    secret: str = field(repr=False)


@dataclass(frozen=True)
class WebhookDelivery:
    """An event, sent to a webhook.

    Attributes:
        id: the webhook-id that is sent, the same for all attempts.
        type: such as dev.mvprune.job.succeeded.v1.
        subject: name of the job or sweep.
        state: pending, delivered or failed.
        status: of HTTP, of the newest attempt; 0: no answer came.
        error: of the newest attempt.
        create_time: of the event.
    """

    id: str
    name: str
    type: str
    subject: str
    state: str
    attempts: int
    status: int
    error: str
    create_time: datetime | None
    attempt_time: datetime | None


class AsyncWebhooks:
    """Manages the webhooks of the client's project; see `AsyncClient.webhooks`. Needs a token of the scope admin."""

    def __init__(self, transport: Transport, project: str) -> None:
        self._transport = transport
        self._project = project

    async def create(
        self,
        url: str,
        events: Sequence[str],
        *,
        labels: Mapping[str, str] | None = None,
        format: str = "cloudevents",
        webhook_id: str = "",
        display_name: str = "",
    ) -> NewWebhook:
        """Creates a webhook.

        Args:
            url: https://…
            events: types of events, such as job.succeeded, job.failed, sweep.*.
            labels: only jobs and sweeps with all of these.
            format: cloudevents, or slack for an incoming webhook of Slack or Mattermost.
            webhook_id: "": the server chooses one.
        """
        given = webhook_pb2.Webhook(url=url, events=events, labels=labels, display_name=display_name)
        given.format = _number(webhook_pb2.Webhook.Format, "format", format, _FORMATS)
        parent = f"projects/{self._project}"
        request = webhook_pb2.CreateWebhookRequest(parent=parent, webhook_id=webhook_id, webhook=given)
        answer = await self._transport.call(self._transport.webhooks.CreateWebhook, request, repeatable=False)
        return NewWebhook(**_webhook_fields(answer.webhook), secret=answer.secret)

    async def get(self, webhook_id: str) -> Webhook:
        """Returns one webhook."""
        request = webhook_pb2.GetWebhookRequest(name=self._name(webhook_id))
        return Webhook(**_webhook_fields(await self._transport.call(self._transport.webhooks.GetWebhook, request)))

    async def list(self) -> AsyncGenerator[Webhook, None]:
        """Iterates over the webhooks of the project, newest first."""
        request = webhook_pb2.ListWebhooksRequest(parent=f"projects/{self._project}")
        async for webhook in listed(self._transport, self._transport.webhooks.ListWebhooks, request, "webhooks"):
            yield Webhook(**_webhook_fields(webhook))

    async def update(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        format: str | None = None,
        display_name: str | None = None,
        enabled: bool | None = None,
        etag: str = "",
    ) -> Webhook:
        """Changes what is given. Deliveries that wait are then sent at once. With `etag`, raises Conflict if the
        webhook has changed."""
        request = webhook_pb2.UpdateWebhookRequest(name=self._name(webhook_id), etag=etag)
        values: dict[str, Any] = {"url": url, "events": events, "labels": labels, "display_name": display_name}
        if format is not None:
            values["format"] = _number(webhook_pb2.Webhook.Format, "format", format, _FORMATS)
        if enabled is not None:
            values["state"] = webhook_pb2.Webhook.ENABLED if enabled else webhook_pb2.Webhook.DISABLED
        values = {name: value for name, value in values.items() if value is not None}
        request.webhook.MergeFrom(webhook_pb2.Webhook(**values))
        request.update_mask.paths.extend(values)
        answer = await self._transport.call(self._transport.webhooks.UpdateWebhook, request, repeatable=not etag)
        return Webhook(**_webhook_fields(answer))

    async def delete(self, webhook_id: str) -> None:
        """Deletes a webhook with its deliveries."""
        request = webhook_pb2.DeleteWebhookRequest(name=self._name(webhook_id))
        await self._transport.call(self._transport.webhooks.DeleteWebhook, request, repeatable=False)

    async def test(self, webhook_id: str) -> WebhookDelivery:
        """Sends an event of the type dev.mvprune.webhook.test.v1 and returns how that ended."""
        request = webhook_pb2.TestWebhookRequest(name=self._name(webhook_id))
        answer = await self._transport.call(self._transport.webhooks.TestWebhook, request, repeatable=False)
        return _delivery(answer)

    async def rotate_secret(self, webhook_id: str, *, old_ttl: float | None = None) -> NewWebhook:
        """Gives a webhook another secret.

        Args:
            old_ttl: seconds for which the old secret signs too, at most 7 days; None: a day.
        """
        request = webhook_pb2.RotateWebhookSecretRequest(name=self._name(webhook_id))
        if old_ttl is not None:
            request.old_ttl.FromNanoseconds(round(old_ttl * 1e9))
        answer = await self._transport.call(self._transport.webhooks.RotateWebhookSecret, request, repeatable=False)
        return NewWebhook(**_webhook_fields(answer.webhook), secret=answer.secret)

    async def deliveries(
        self, webhook_id: str, *, state: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[WebhookDelivery, None]:
        """Iterates over the deliveries of a webhook, newest first.

        Args:
            state: only those that are pending, delivered or failed.
            limit: how many at most; None: all.
        """
        request = webhook_pb2.ListDeliveriesRequest(parent=self._name(webhook_id))
        if state is not None:
            request.state = _number(webhook_pb2.WebhookDelivery.State, "state", state, _STATES)
        method = self._transport.webhooks.ListDeliveries
        async for delivery in listed(self._transport, method, request, "deliveries", limit):
            yield _delivery(delivery)

    async def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Sends an event again, with the same id."""
        name = f"{self._name(webhook_id)}/deliveries/{delivery_id}"
        request = webhook_pb2.RedeliverDeliveryRequest(name=name)
        return _delivery(await self._transport.call(self._transport.webhooks.RedeliverDelivery, request))

    def _name(self, webhook_id: str) -> str:
        return f"projects/{self._project}/webhooks/{webhook_id}"


def _number(enum: Any, name: str, word: str, words: Sequence[str]) -> Any:
    if word not in words:
        raise bad_field(name, must_be_one_of(words, word))
    return enum.Value(word.upper())


def _webhook_fields(message: webhook_pb2.Webhook) -> dict[str, Any]:
    return fields_of(
        Webhook,
        message,
        id=message.name.rpartition("/")[2],
        format=webhook_pb2.Webhook.Format.Name(message.format).lower(),
        state=webhook_pb2.Webhook.State.Name(message.state).lower(),
    )


def _delivery(message: webhook_pb2.WebhookDelivery) -> WebhookDelivery:
    return same_fields(
        WebhookDelivery,
        message,
        id=message.name.rpartition("/")[2],
        state=webhook_pb2.WebhookDelivery.State.Name(message.state).lower(),
    )
