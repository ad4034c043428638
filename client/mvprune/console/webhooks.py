"""Webhooks of a project, for those with the scope admin: which URLs receive events, and what was sent to them."""

from __future__ import annotations

from starlette.responses import Response

from mvprune.client import tables
from mvprune.common.exceptions import bad_field
from mvprune.console.visit import Visit

_ROWS = 100
_STATES = ("pending", "delivered", "failed")


async def listing(visit: Visit) -> Response:
    """All webhooks, and a form for another."""
    visit.check_admin()
    found = [one async for one in visit.calls.webhooks.list()]
    rows = list(zip(found, tables.webhook_rows(found), strict=True))
    return visit.page("webhooks.html", columns=tables.WEBHOOK_COLUMNS, rows=rows)


async def overview(visit: Visit) -> Response:
    """A webhook and its newest deliveries."""
    visit.check_admin()
    return await _page(visit)


async def create(visit: Visit) -> Response:
    """Makes a webhook, and shows its secret once."""
    made = await visit.calls.webhooks.create(
        visit.given("url"),
        [one.strip() for one in visit.given("events").split(",") if one.strip()],
        format=visit.given("format") or "cloudevents",
        webhook_id=visit.given("id"),
    )
    return await _page(visit, made.id, secret=made.secret)


async def change(visit: Visit) -> Response:
    """Tests, enables, disables or deletes a webhook, or gives it another secret."""
    webhooks, name, wanted = visit.calls.webhooks, visit.request.path_params["webhook"], visit.given("change")
    if wanted == "test":
        return await _page(visit, tested=tables.delivery_line(await webhooks.test(name)))
    if wanted == "rotate":
        return await _page(visit, secret=(await webhooks.rotate_secret(name)).secret)
    if wanted in ("enable", "disable"):
        await webhooks.update(name, enabled=wanted == "enable")
    elif wanted == "delete":
        await webhooks.delete(name)
        return visit.go(visit.path("webhooks"))
    else:
        raise bad_field("change", f"must be test, rotate, enable, disable or delete, got {wanted[:80]!r}")
    return visit.go(visit.path("webhooks", name))


async def redeliver(visit: Visit) -> Response:
    """Sends an event again."""
    name = visit.request.path_params["webhook"]
    await visit.calls.webhooks.redeliver(name, visit.given("delivery"))
    return visit.go(visit.path("webhooks", name))


async def _page(visit: Visit, webhook_id: str = "", *, secret: str = "", tested: str = "") -> Response:
    """The page of a webhook: that of the address, unless another is given.

    Args:
        secret: that was just made; it is shown this once.
        tested: how a test ended.
    """
    name = webhook_id or visit.request.path_params["webhook"]
    state = visit.asked("state")
    webhook = await visit.calls.webhooks.get(name)
    asked = visit.calls.webhooks.deliveries(name, state=state if state in _STATES else None, limit=_ROWS)
    found = [one async for one in asked]
    return visit.page(
        "webhook.html",
        webhook=webhook,
        fields=tables.webhook_fields(webhook),
        secret=secret,
        tested=tested,
        states=[("all", "", not state), *((one, one, one == state) for one in _STATES)],
        columns=tables.DELIVERY_COLUMNS,
        rows=list(zip(found, tables.delivery_rows(found), strict=True)),
    )
