"""mvpctl webhook"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.options import Parser, command_parser, connect, subcommand
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import duration, label, one_of, positive_number
from mvprune.client import tables

if TYPE_CHECKING:
    from mvprune.client.webhooks import NewWebhook, Webhook, WebhookDelivery

_HELP = """usage: mvpctl webhook create|list|get|update|delete|test|deliveries|redeliver|rotate ...

Has events of jobs and sweeps sent to a URL, signed as Standard Webhooks says; docs/webhooks.md shows a receiver. All
need a token of the scope admin.

example:
  mvpctl webhook create https://ci.example/mvprune --events job.succeeded,job.failed --id ci
  mvpctl webhook test ci
  mvpctl webhook deliveries ci --state failed
  mvpctl webhook redeliver ci 01976f3c-7a10-7c3e-9f0e-5f1d0c6c4a11-9"""
_EVENTS = (
    "separated by commas: job.created, started, requeued, retried, succeeded, failed, cancelled, gate_failed, *; "
    "sweep.created, paused, resumed, succeeded, failed, cancelled, *"
)


def webhook_command(argv: Sequence[str]) -> int | None:
    """Runs one of the subcommands."""
    known = {"create": _create, "list": _list, "get": _get, "update": _update, "delete": _delete, "test": _test}
    known |= {"deliveries": _deliveries, "redeliver": _redeliver, "rotate": _rotate}
    return subcommand("webhook", _HELP, known, argv)


def _parser(name: str, example: str, details: str, *, webhook: bool = True) -> Parser:
    parser = command_parser(f"webhook {name}", f"mvpctl webhook {name} {example}".rstrip(), details, job=False)
    if webhook:
        parser.add_argument("id", metavar="ID", help="a webhook's id")
    return parser


def _add_content(parser: Parser, *, events_needed: bool) -> None:
    parser.add_argument("--events", type=_words, required=events_needed, metavar="TYPE[,TYPE]", help=_EVENTS)
    parser.add_argument(
        "--label",
        type=label,
        action="append",
        metavar="KEY=VALUE",
        help="only jobs and sweeps with this label; can be repeated",
    )
    parser.add_argument(
        "--format",
        type=one_of("cloudevents", "slack"),
        help="cloudevents, or slack for incoming webhooks of Slack and Mattermost; default of new ones: cloudevents",
    )
    parser.add_argument("--name", help="what it is for")


def _create(argv: Sequence[str]) -> None:
    details = "Creates a webhook and prints its secret, which cannot be shown again."
    example = "https://ci.example/mvprune --events job.succeeded,job.failed --label team=search"
    parser = _parser("create", example, details, webhook=False)
    parser.add_argument("url", metavar="URL", help="https://…")
    parser.add_argument("--id", default="", help="letters, digits and hyphens; default: the server chooses one")
    _add_content(parser, events_needed=True)
    args = parser.parse_args(argv)
    with connect(args) as client:
        webhook = client.webhooks.create(
            args.url,
            args.events,
            labels=dict(args.label or ()),
            format=args.format or "cloudevents",
            webhook_id=args.id,
            display_name=args.name or "",
        )
    answer(args.form, webhook, [webhook.secret], lambda: _print_secret(webhook))


def _list(argv: Sequence[str]) -> None:
    args = _parser("list", "", "Lists webhooks, newest first.", webhook=False).parse_args(argv)
    with connect(args) as client:
        webhooks = list(client.webhooks.list())
    answer(
        args.form,
        webhooks,
        [webhook.id for webhook in webhooks],
        lambda: print_table(tables.WEBHOOK_COLUMNS, tables.webhook_rows(webhooks)),
    )


def _get(argv: Sequence[str]) -> None:
    args = _parser("get", "ci", "Shows a webhook.").parse_args(argv)
    with connect(args) as client:
        webhook = client.webhooks.get(args.id)
    answer(args.form, webhook, [webhook.id], lambda: _print_webhook(webhook))


def _update(argv: Sequence[str]) -> None:
    details = "Changes what is given. Deliveries that wait are then sent at once."
    parser = _parser("update", "ci --events job.*,sweep.* --enable", details)
    parser.add_argument("--url", help="https://…")
    _add_content(parser, events_needed=False)
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--enable", action="store_true", default=None, help="send events from now on")
    switch.add_argument("--disable", action="store_false", dest="enable", default=None, help="send nothing")
    args = parser.parse_args(argv)
    with connect(args) as client:
        webhook = client.webhooks.update(
            args.id,
            url=args.url,
            events=args.events,
            labels=None if args.label is None else dict(args.label),
            format=args.format,
            display_name=args.name,
            enabled=args.enable,
        )
    answer(args.form, webhook, [webhook.id], lambda: _print_webhook(webhook))


def _delete(argv: Sequence[str]) -> None:
    args = _parser("delete", "ci", "Deletes a webhook. What waits is not sent.").parse_args(argv)
    with connect(args) as client:
        client.webhooks.delete(args.id)
    answer(args.form, {"deleted": args.id}, [args.id], lambda: print(clean(f"webhook {args.id} is deleted")))


def _test(argv: Sequence[str]) -> int:
    details = "Sends an event of the type webhook.test and prints how that ended; exit code 1 if it failed."
    args = _parser("test", "ci", details).parse_args(argv)
    with connect(args) as client:
        delivery = client.webhooks.test(args.id)
    answer(args.form, delivery, [delivery.id], lambda: print(clean(tables.delivery_line(delivery))))
    return 0 if delivery.state == "delivered" else 1


def _deliveries(argv: Sequence[str]) -> None:
    details = "Lists what was sent and what waits, newest first. The server keeps deliveries for some days."
    parser = _parser("deliveries", "ci --state failed", details)
    parser.add_argument("--state", type=one_of("pending", "delivered", "failed"), help="only those")
    parser.add_argument("--limit", type=positive_number, default=50, metavar="N", help="at most; default: 50")
    args = parser.parse_args(argv)
    with connect(args) as client:
        found = list(client.webhooks.deliveries(args.id, state=args.state, limit=args.limit))
    answer(args.form, found, [one.id for one in found], lambda: _print_deliveries(found))


def _redeliver(argv: Sequence[str]) -> None:
    details = "Sends events again, with the same ids. The receiver's answer is in `mvpctl webhook deliveries`."
    parser = _parser("redeliver", "ci 01976f3c-7a10-7c3e-9f0e-5f1d0c6c4a11-9", details)
    parser.add_argument("deliveries", nargs="+", metavar="DELIVERY", help="the id of a delivery; several are allowed")
    args = parser.parse_args(argv)
    with connect(args) as client:
        found = [client.webhooks.redeliver(args.id, one) for one in args.deliveries]
    answer(args.form, found, [one.id for one in found], lambda: _print_deliveries(found))


def _rotate(argv: Sequence[str]) -> None:
    details = "Gives a webhook another secret and prints it. For a time, what is sent is signed with both."
    parser = _parser("rotate", "ci --old-ttl 2h", details)
    parser.add_argument(
        "--old-ttl", type=duration, metavar="TIME", help="time for which the old secret signs too, to 7d; default: 1d"
    )
    args = parser.parse_args(argv)
    with connect(args) as client:
        webhook = client.webhooks.rotate_secret(args.id, old_ttl=args.old_ttl)
    answer(args.form, webhook, [webhook.secret], lambda: _print_secret(webhook))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _print_secret(webhook: NewWebhook) -> None:
    print(f"{webhook.id}: {', '.join(webhook.events)}. The secret:", file=sys.stderr)
    print(clean(webhook.secret))


def _print_webhook(webhook: Webhook) -> None:
    print_fields(tables.webhook_fields(webhook))


def _print_deliveries(deliveries: Sequence[WebhookDelivery]) -> None:
    print_table(tables.DELIVERY_COLUMNS, tables.delivery_rows(deliveries))
