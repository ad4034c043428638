"""Webhooks and what is sent to them."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Column, Index, Named, Table, Text, TypedColumns, text

from mvprune_service.db.tables.base import METADATA, Member
from mvprune_service.domain.webhooks import DeliveryState, WebhookFormat, WebhookState
from mvprune_service.ids import DeliveryName, WebhookName


class WebhookColumns(TypedColumns):
    """A webhook. Its secret is derived from the server's key, `uid` and `generation`."""

    uid: Named[str] = Column(Text, primary_key=True)
    project: Named[str] = Column(Text)
    webhook_id: Named[str] = Column(Text)
    display_name: Named[str] = Column(Text)
    url: Named[str] = Column(Text)
    events: Named[list[str]] = Column(JSON)
    labels: Named[dict[str, str]] = Column(JSON)  # that a job or sweep must have
    format: Named[WebhookFormat] = Column(Member(WebhookFormat))
    state: Named[WebhookState] = Column(Member(WebhookState))
    state_reason: Named[str] = Column(Text)  # why the server disabled it
    generation: Named[int] = Column(BigInteger)  # of the secret
    old_secret_until_us: Named[int | None] = Column(BigInteger)  # until then the secret before signs too
    creator: Named[str] = Column(Text)
    create_us: Named[int] = Column(BigInteger)
    update_us: Named[int] = Column(BigInteger)
    version: Named[int] = Column(BigInteger)  # the etag
    failures: Named[int] = Column(BigInteger)  # attempts that failed in a row
    due_us: Named[int] = Column(BigInteger)  # nothing is sent before: back-off
    claim_us: Named[int] = Column(BigInteger)  # until then one server sends; it identifies the claim


WEBHOOKS = Table(
    "webhooks",
    METADATA,
    WebhookColumns,
    Index("uq_webhooks_project_webhook_id", "project", "webhook_id", unique=True),
)


class WebhookRow(NamedTuple):
    """A row of `webhooks`."""

    uid: str
    project: str
    webhook_id: str
    display_name: str
    url: str
    events: list[str]
    labels: dict[str, str]
    format: WebhookFormat
    state: WebhookState
    state_reason: str
    generation: int
    old_secret_until_us: int | None
    creator: str
    create_us: int
    update_us: int
    version: int
    failures: int
    due_us: int
    claim_us: int

    @property
    def name(self) -> WebhookName:
        """The webhook's resource name."""
        return WebhookName(self.project, self.webhook_id)


class ListeningRow(NamedTuple):
    """The columns of `webhooks` that decide whether an event is sent."""

    uid: str
    events: list[str]
    labels: dict[str, str]


class DeliveryColumns(TypedColumns):
    """An event for a webhook, written in the event's transaction. Not a foreign key: a job must not fail because a
    webhook is deleted at the same time. The janitor deletes what is left then."""

    webhook_uid: Named[str] = Column(Text, primary_key=True)
    event_id: Named[str] = Column(Text, primary_key=True)
    type: Named[str] = Column(Text)
    subject: Named[str] = Column(Text)
    subject_uid: Named[str] = Column(Text)
    sequence: Named[int] = Column(BigInteger)
    data: Named[dict[str, Any]] = Column(JSON)
    state: Named[DeliveryState] = Column(Member(DeliveryState))
    attempts: Named[int] = Column(BigInteger)
    status: Named[int | None] = Column(BigInteger)  # of HTTP, of the newest attempt
    error: Named[str] = Column(Text)  # of the newest attempt
    create_us: Named[int] = Column(BigInteger)  # of the event
    until_us: Named[int] = Column(BigInteger)  # when it is given up
    attempt_us: Named[int | None] = Column(BigInteger)  # the newest


_PENDING = text(f"state = '{DeliveryState.PENDING}'")
DELIVERIES = Table(
    "webhook_deliveries",
    METADATA,
    DeliveryColumns,
    Index("ix_webhook_deliveries_webhook_uid_create_us", "webhook_uid", "create_us", "event_id"),
    Index(
        "ix_webhook_deliveries_pending",
        "webhook_uid",
        "create_us",
        "event_id",
        sqlite_where=_PENDING,
        postgresql_where=_PENDING,
    ),
    Index("ix_webhook_deliveries_create_us", "create_us"),
)


class DeliveryRow(NamedTuple):
    """A row of `webhook_deliveries`."""

    webhook_uid: str
    event_id: str
    type: str
    subject: str
    subject_uid: str
    sequence: int
    data: dict[str, Any]
    state: DeliveryState
    attempts: int
    status: int | None
    error: str
    create_us: int
    until_us: int
    attempt_us: int | None

    def name(self, webhook: WebhookName) -> DeliveryName:
        """The delivery's resource name."""
        return DeliveryName(webhook.project, webhook.webhook, self.event_id)
