"""What webhooks hear of, how it looks, how it is signed, and when it is sent again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TRANSITIONS, JobState
from mvprune_service.domain.sweeping import SweepState
from mvprune_service.domain.webhooks import (
    BACK_OFF_SECONDS,
    EVENT_TYPES,
    GIVE_UP_US,
    TEST_TYPE,
    Answer,
    DeliveryState,
    Event,
    WebhookFormat,
    job_types,
    sweep_types,
    verdict,
    wanted,
)
from mvprune_service.notices import Notice, headers, render, secret

_S = JobState
NOW = 1_800_000_000_000_000


def event(*types: str, **labels: str) -> Event:
    return Event(types, "p", "projects/p/jobs/j", "uid", 3, labels, {})


def test_every_move_of_a_job_has_a_known_name_or_none() -> None:
    moves = [(None, _S.QUEUED), *((source, target) for (source, _), target in TRANSITIONS.items())]
    named = {move: job_types(*move, None) for move in moves}
    assert {name for names in named.values() for name in names} == {
        f"job.{one}" for one in ("created", "started", "requeued", "retried", "succeeded", "failed", "cancelled")
    }
    assert all(named[move] for move in moves if move[1] in (_S.SUCCEEDED, _S.FAILED))
    assert named[_S.CANCELLED, _S.CANCELLED] == named[_S.QUEUED, _S.STARTING] == ()
    gate = job_types(_S.FINALIZING, _S.FAILED, FailureReason.GATE_FAILED)
    assert gate == ("job.failed", "job.gate_failed")
    names = {name for source in (None, *SweepState) for state in SweepState for name in sweep_types(source, state)}
    assert names == {one for one in EVENT_TYPES if one.startswith("sweep.")} - {"sweep.*"}


def test_a_webhook_hears_what_it_asks_for() -> None:
    failed = event("job.failed", "job.gate_failed", team="red", tier="1")
    assert wanted(["job.failed", "job.gate_failed"], {}, failed) == "job.failed"
    assert wanted(["job.gate_failed"], {}, failed) == "job.gate_failed"
    assert wanted(["job.*"], {"team": "red"}, failed) == "job.failed"
    assert wanted(["job.*"], {"team": "red", "tier": "2"}, failed) is None
    assert wanted(["job.*"], {"absent": ""}, failed) is None
    assert wanted(["sweep.*", "job.succeeded"], {}, failed) is None


def test_a_cloud_event_is_thin_and_small() -> None:
    data = {"name": "projects/p/jobs/j", "display_name": "ü" * 200, "reason": "x" * 1000, "task": "t" * 1000}
    kind, body = render(Notice("uid-3", "job.failed", "projects/p/jobs/j", NOW, data), WebhookFormat.CLOUDEVENTS)
    assert kind.startswith("application/cloudevents+json")
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": "uid-3",
        "source": "/projects/p",
        "type": "dev.mvprune.job.failed.v1",
        "subject": "projects/p/jobs/j",
        "time": "2027-01-15T08:00:00.000Z",
        "datacontenttype": "application/json",
        "data": data,
    }
    assert len(body) < 64 << 10


def test_slack_gets_a_sentence_without_mentions_of_a_users_making() -> None:
    data = {"display_name": "<!channel> & `x`", "primary_metric": "accuracy", "metric": 0.91234, "difference": -0.004}
    _, body = render(Notice("uid-3", "job.succeeded", "projects/p/jobs/j", NOW, data), WebhookFormat.SLACK)
    text = json.loads(body)["text"]
    assert text == (
        "Job `j` (&lt;!channel&gt; &amp; 'x') of `p`: succeeded, accuracy 0.9123 (-0.0040 of the dense model's)"
    )
    assert json.loads(body)["blocks"][0]["text"]["text"] == text
    for kind, subject in ((TEST_TYPE, "projects/p/webhooks/w"), ("sweep.failed", "projects/p/sweeps/s")):
        assert b"`" in render(Notice("i", kind, subject, NOW, {"reason": "BUDGET_USED"}), WebhookFormat.SLACK)[1]


def test_the_signature_is_that_of_standard_webhooks() -> None:
    # The example of the specification's own libraries.
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    sent = headers([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330_999_999, b'{"test": 2432232314}')
    assert sent == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    first, second = (secret(b"k" * 32, "uid", generation) for generation in (1, 2))
    assert first != second
    assert first != secret(b"j" * 32, "uid", 1)
    both = headers([second, first], "i", NOW, b"{}")["webhook-signature"].split(" ")
    signed = f"i.{NOW // 1_000_000}.{{}}".encode()
    for one, made in zip((second, first), both, strict=True):
        digest = hmac.new(base64.b64decode(one[6:]), signed, hashlib.sha256).digest()
        assert made == f"v1,{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(("failures", "seconds"), [*enumerate(BACK_OFF_SECONDS), (99, 36_000)])
def test_back_off(failures: int, seconds: int) -> None:
    found = verdict(Answer(500, "HTTP 500"), failures=failures, until_us=NOW + 1, now_us=NOW)
    assert (found.state, found.failures, found.due_us - NOW) == ("PENDING", failures + 1, seconds * 1_000_000)


def test_what_ends_a_delivery() -> None:
    late = verdict(Answer(None, "away"), failures=3, until_us=NOW, now_us=NOW)
    assert (late.state, late.disabled) == (DeliveryState.FAILED, "")
    assert late.due_us > NOW
    gone = verdict(Answer(410, "HTTP 410"), failures=0, until_us=NOW + GIVE_UP_US, now_us=NOW)
    assert gone.state is DeliveryState.FAILED
    assert "410" in gone.disabled
    done = verdict(Answer(299), failures=9, until_us=0, now_us=NOW)
    assert (done.state, done.failures, done.due_us) == (DeliveryState.DELIVERED, 0, 0)
