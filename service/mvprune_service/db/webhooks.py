"""Commands on webhooks, and what their sender reads and writes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, literal_column, select, tuple_, update

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Query, fetch_all, fetch_one
from mvprune_service.db.lifecycle import EtagMismatch
from mvprune_service.db.tables.webhooks import DELIVERIES, WEBHOOKS, DeliveryRow, WebhookRow
from mvprune_service.domain.webhooks import GIVE_UP_US, Answer, DeliveryState, WebhookState, verdict
from mvprune_service.ids import DeliveryName, WebhookName, new_uid

# Not a parameter: the index of what waits is used only where the statement says so.
_PENDING = DELIVERIES.c.state == literal_column(f"'{DeliveryState.PENDING}'")
_HAS_PENDING = exists().where(DELIVERIES.c.webhook_uid == WEBHOOKS.c.uid, _PENDING)
_MOST = 20  # of a project
_NOT_IN_TIME = "it could not be delivered in time"


class UidRow(NamedTuple):
    """The uid of a webhook."""

    uid: str


_DUE = Query(
    UidRow,
    select(WEBHOOKS.c.uid)
    .where(
        WEBHOOKS.c.state == bindparam("enabled"),
        WEBHOOKS.c.due_us <= bindparam("now"),
        WEBHOOKS.c.claim_us <= bindparam("now"),
        _HAS_PENDING,
    )
    .limit(1),
)


class WebhookExists(Exception):
    """The project has a webhook with this id."""


class TooManyWebhooks(Exception):
    """The project has as many webhooks as it may."""

    limit = _MOST


class Claim(NamedTuple):
    """A webhook that this server sends to, and what it sends next."""

    webhook: WebhookRow
    delivery: DeliveryRow


class Recorded(NamedTuple):
    """What followed from an attempt; `state` is None where another server has claimed the webhook since."""

    state: DeliveryState | None
    disabled: str = ""
    next: Claim | None = None


def create(tx: Tx, name: WebhookName, values: dict[str, Any], *, creator: str) -> WebhookRow:
    """A new webhook. Raises WebhookExists, TooManyWebhooks."""
    if webhook_named(tx.conn, name) is not None:
        raise WebhookExists
    known = select(func.count()).select_from(WEBHOOKS).where(WEBHOOKS.c.project == name.project)
    if tx.conn.execute(known).scalar_one() >= _MOST:
        raise TooManyWebhooks
    row = WebhookRow(
        uid=new_uid(tx.now),
        project=name.project,
        webhook_id=name.webhook,
        **values,
        state_reason="",
        generation=1,
        old_secret_until_us=None,
        creator=creator,
        create_us=tx.now,
        update_us=tx.now,
        version=1,
        failures=0,
        due_us=0,
        claim_us=0,
    )
    tx.conn.execute(insert(WEBHOOKS).values(row._asdict()))
    return row


def webhook_named(conn: Connection, name: WebhookName) -> WebhookRow | None:
    """One webhook."""
    return fetch_one(conn, WebhookRow, select(WEBHOOKS).where(*_is(name)))


def page(conn: Connection, project: str, before: tuple[int, str] | None, size: int) -> list[WebhookRow]:
    """Webhooks of a project, newest first, from just before the key (create_us, uid)."""
    found = select(WEBHOOKS).where(WEBHOOKS.c.project == project)
    if before:
        found = found.where(tuple_(WEBHOOKS.c.create_us, WEBHOOKS.c.uid) < tuple_(*before))
    newest = found.order_by(WEBHOOKS.c.create_us.desc(), WEBHOOKS.c.uid.desc())
    return fetch_all(conn, WebhookRow, newest.limit(size))


def pending_of(conn: Connection, uids: Sequence[str]) -> dict[str, int]:
    """How many deliveries of these webhooks wait."""
    waiting = select(DELIVERIES.c.webhook_uid, func.count()).where(DELIVERIES.c.webhook_uid.in_(uids), _PENDING)
    return {row[0]: row[1] for row in conn.execute(waiting.group_by(DELIVERIES.c.webhook_uid))}


def change(tx: Tx, name: WebhookName, values: dict[str, Any], *, etag: str = "") -> WebhookRow | None:
    """Changes a webhook, which is tried again at once. None: there is none. Raises EtagMismatch."""
    row = _lock(tx, name)
    if row is None:
        return None
    if etag and etag != str(row.version):
        raise EtagMismatch
    if values.get("state") is WebhookState.ENABLED:
        values = {**values, "state_reason": ""}
    return _touch(tx, row, **values, failures=0, due_us=0)


def rotate(tx: Tx, name: WebhookName, *, old_us: int) -> WebhookRow | None:
    """Gives a webhook another secret. None: there is none.

    Args:
        old_us: how long the secret before signs too.
    """
    row = _lock(tx, name)
    if row is None:
        return None
    return _touch(tx, row, generation=row.generation + 1, old_secret_until_us=tx.now + old_us if old_us else None)


def remove(tx: Tx, name: WebhookName, *, etag: str = "") -> bool:
    """Deletes a webhook with its deliveries; whether there was one. Raises EtagMismatch."""
    row = _lock(tx, name)
    if row is None:
        return False
    if etag and etag != str(row.version):
        raise EtagMismatch
    tx.conn.execute(delete(DELIVERIES).where(DELIVERIES.c.webhook_uid == row.uid))
    tx.conn.execute(delete(WEBHOOKS).where(WEBHOOKS.c.uid == row.uid))
    return True


def page_of_deliveries(
    conn: Connection, uid: str, before: tuple[int, str] | None, size: int, state: DeliveryState | None
) -> list[DeliveryRow]:
    """Deliveries of a webhook, newest first, from just before the key (create_us, event_id); those in a `state`."""
    found = select(DELIVERIES).where(DELIVERIES.c.webhook_uid == uid)
    if state is not None:
        found = found.where(DELIVERIES.c.state == state)
    if before:
        found = found.where(tuple_(DELIVERIES.c.create_us, DELIVERIES.c.event_id) < tuple_(*before))
    newest = found.order_by(DELIVERIES.c.create_us.desc(), DELIVERIES.c.event_id.desc())
    return fetch_all(conn, DeliveryRow, newest.limit(size))


def redeliver(tx: Tx, name: DeliveryName) -> DeliveryRow | None:
    """Sends an event again, also one that was delivered, as soon as the webhook is free. None: there is none."""
    row = _lock(tx, WebhookName(name.project, name.webhook))
    if row is None:
        return None
    is_it = (DELIVERIES.c.webhook_uid == row.uid, DELIVERIES.c.event_id == name.event)
    values = {"state": DeliveryState.PENDING, "until_us": tx.now + GIVE_UP_US}
    if not tx.conn.execute(update(DELIVERIES).where(*is_it).values(values)).rowcount:
        return None
    tx.conn.execute(update(WEBHOOKS).where(WEBHOOKS.c.uid == row.uid).values(due_us=0, failures=0))
    return fetch_one(tx.conn, DeliveryRow, select(DELIVERIES).where(*is_it))


def has_due(conn: Connection, now: int) -> bool:
    """Whether something is to be sent now."""
    return _DUE.first(conn, {"enabled": WebhookState.ENABLED, "now": now}) is not None


def claim(tx: Tx, most: int, claim_us: int, busy: Collection[str]) -> list[Claim]:
    """Claims webhooks to which something is to be sent, those of all projects but `busy`. No other server sends to
    them for `claim_us`."""
    due = (
        select(WEBHOOKS)
        .where(WEBHOOKS.c.state == WebhookState.ENABLED, WEBHOOKS.c.due_us <= tx.now, WEBHOOKS.c.claim_us <= tx.now)
        .where(_HAS_PENDING, WEBHOOKS.c.project.not_in(busy))
        .order_by(WEBHOOKS.c.due_us, WEBHOOKS.c.claim_us)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    claimed = []
    for row in fetch_all(tx.conn, WebhookRow, due):
        following = _claimed(tx, row, claim_us)
        if following is not None:
            claimed.append(following)
    return claimed


def record(tx: Tx, claimed: Claim, answer: Answer, claim_us: int) -> Recorded:
    """Records an attempt. After a success the claim goes on with the next delivery, else it ends."""
    webhook, delivery = claimed
    is_it = (WEBHOOKS.c.uid == webhook.uid, WEBHOOKS.c.claim_us == webhook.claim_us)
    row = fetch_one(tx.conn, WebhookRow, select(WEBHOOKS).where(*is_it).with_for_update())
    if row is None:
        return Recorded(None)
    follows = verdict(answer, failures=row.failures, until_us=delivery.until_us, now_us=tx.now)
    of_webhook = DELIVERIES.c.webhook_uid == webhook.uid
    tx.conn.execute(
        update(DELIVERIES)
        .where(of_webhook, DELIVERIES.c.event_id == delivery.event_id)
        .values(
            state=follows.state,
            attempts=DELIVERIES.c.attempts + 1,
            status=answer.status,
            error=answer.error,
            attempt_us=tx.now,
        )
    )
    values: dict[str, Any] = {"failures": follows.failures, "due_us": follows.due_us, "claim_us": 0}
    if follows.disabled:
        values |= {"state": WebhookState.DISABLED, "state_reason": follows.disabled, "version": row.version + 1}
    tx.conn.execute(update(WEBHOOKS).where(*is_it).values(values))
    if answer.is_success:
        return Recorded(follows.state, next=_claimed(tx, row, claim_us))
    if follows.state is DeliveryState.FAILED:  # what is as old has no better chance
        late = update(DELIVERIES).where(of_webhook, _PENDING, DELIVERIES.c.until_us <= tx.now)
        tx.conn.execute(late.values(state=DeliveryState.FAILED, error=_NOT_IN_TIME))
    return Recorded(follows.state, follows.disabled)


def release(tx: Tx, claimed: Claim) -> None:
    """Ends a claim: others may have it."""
    row = claimed.webhook
    is_it = (WEBHOOKS.c.uid == row.uid, WEBHOOKS.c.claim_us == row.claim_us)
    tx.conn.execute(update(WEBHOOKS).where(*is_it).values(claim_us=0))


def prune(tx: Tx, before_us: int, limit: int) -> int:
    """Deletes deliveries of events before a time, up to `limit`; returns how many."""
    key = tuple_(DELIVERIES.c.webhook_uid, DELIVERIES.c.event_id)
    old = select(DELIVERIES.c.webhook_uid, DELIVERIES.c.event_id).where(DELIVERIES.c.create_us < before_us)
    return tx.conn.execute(delete(DELIVERIES).where(key.in_(old.limit(limit)))).rowcount


def _claimed(tx: Tx, row: WebhookRow, claim_us: int) -> Claim | None:
    """Claims a locked webhook for its next delivery, the oldest that waits, but no event of a job or sweep before an
    earlier one of it: the clocks of servers differ. None: nothing waits, or it is disabled."""
    waiting = select(DELIVERIES).where(DELIVERIES.c.webhook_uid == row.uid, _PENDING)
    oldest = fetch_one(tx.conn, DeliveryRow, waiting.order_by(DELIVERIES.c.create_us, DELIVERIES.c.event_id).limit(1))
    if oldest is None or row.state is WebhookState.DISABLED:
        return None
    earliest = waiting.where(DELIVERIES.c.subject_uid == oldest.subject_uid).order_by(DELIVERIES.c.sequence).limit(1)
    first = fetch_one(tx.conn, DeliveryRow, earliest) or oldest
    until = max(tx.now + claim_us, row.claim_us + 1)  # differs from that of the claim before
    tx.conn.execute(update(WEBHOOKS).where(WEBHOOKS.c.uid == row.uid).values(claim_us=until))
    return Claim(row._replace(claim_us=until), first)


def _touch(tx: Tx, row: WebhookRow, **values: Any) -> WebhookRow:
    changed: dict[str, Any] = {**values, "version": row.version + 1, "update_us": tx.now}
    tx.conn.execute(update(WEBHOOKS).where(WEBHOOKS.c.uid == row.uid).values(changed))
    return row._replace(**changed)


def _lock(tx: Tx, name: WebhookName) -> WebhookRow | None:
    return fetch_one(tx.conn, WebhookRow, select(WEBHOOKS).where(*_is(name)).with_for_update())


def _is(name: WebhookName) -> tuple[Any, ...]:
    return WEBHOOKS.c.project == name.project, WEBHOOKS.c.webhook_id == name.webhook
