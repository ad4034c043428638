"""What webhooks get: the body of an event, and the signature of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mvprune_service.clock import SECOND
from mvprune_service.domain.webhooks import TEST_TYPE, WebhookFormat, full_type


@dataclass(frozen=True)
class Notice:
    """What is sent of an event.

    Attributes:
        id: the same for all attempts.
        type: such as job.succeeded.
        time_us: of the event.
    """

    id: str
    type: str
    subject: str
    time_us: int
    data: Mapping[str, Any]


def render(notice: Notice, form: WebhookFormat) -> tuple[str, bytes]:
    """The content type and the body."""
    if form is WebhookFormat.SLACK:
        text = _sentence(notice)
        block = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
        return "application/json; charset=utf-8", _json({"text": text, "blocks": [block]})
    time = datetime.fromtimestamp(notice.time_us / SECOND, UTC).isoformat(timespec="milliseconds")
    event = {
        "specversion": "1.0",
        "id": notice.id,
        "source": "/".join(["", *notice.subject.split("/")[:2]]),
        "type": full_type(notice.type),
        "subject": notice.subject,
        "time": time.replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": dict(notice.data),
    }
    return "application/cloudevents+json; charset=utf-8", _json(event)


def _sentence(notice: Notice) -> str:
    if notice.type == TEST_TYPE:
        return f"This is a test of `{_slack(notice.subject)}`."
    kind, _, verb = notice.type.partition(".")
    _, project, _, subject = notice.subject.split("/")
    name = notice.data.get("display_name") or ""
    text = f"{kind.capitalize()} `{_slack(subject)}`{f' ({_slack(name)})' if name else ''} of `{_slack(project)}`: "
    text += verb.replace("gate_failed", "failed: misses a gate")
    reason, metric = notice.data.get("reason"), notice.data.get("metric")
    if reason and verb != "gate_failed":
        text += f" ({_slack(reason)})"
    if metric is not None:
        text += f", {_slack(notice.data['primary_metric'])} {metric:.4g}"
        difference = notice.data.get("difference")
        text += f" ({difference:+.4f} of the dense model's)" if difference is not None else ""
    return text


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def secret(key: bytes, webhook_uid: str, generation: int) -> str:
    """The secret of a webhook, as Standard Webhooks writes it. It is derived from the server's key, never stored."""
    made = hmac.new(key, f"webhook#{webhook_uid}#{generation}".encode(), hashlib.sha256).digest()
    return f"whsec_{base64.b64encode(made).decode()}"


def headers(secrets: Sequence[str], event_id: str, now_us: int, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks. The signature covers the id, the time and the body."""
    timestamp = str(now_us // SECOND)
    signed = f"{event_id}.{timestamp}.".encode() + body
    made = (hmac.new(base64.b64decode(one.removeprefix("whsec_")), signed, hashlib.sha256).digest() for one in secrets)
    signature = " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made)
    return {"webhook-id": event_id, "webhook-timestamp": timestamp, "webhook-signature": signature}
