"""Webhooks of a real server that is killed between an event and its delivery; the receiver of docs/webhooks.md."""

from __future__ import annotations

import base64
import hmac
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from mvprune import Client

from ..neighbours import free_ports
from ..receiver import receiving
from ..waiting import until
from .servers import Data, Server

CHATTY = Path(__file__).with_name("chatty")
PAGE = Path(__file__).parents[2] / "docs" / "webhooks.md"
URL = "http://127.0.0.1:{port}/hook"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "home")
    yield made
    made.close()


# A server whose trainers only talk.
ENVIRONMENT = {"PYTHONPATH": str(CHATTY)}
OPTIONS = {"webhook_allow": "127.0.0.0/8"}


def submit(client: Client, data: Data) -> str:
    job = client.submit(
        model="bert-base-uncased",
        task="text-classification",
        train=f"server:{data.train}",
        validation=f"server:{data.validation}",
        density=0.1,
        max_attempts=1,
    )
    return job.name


@pytest.mark.slow
def test_no_event_is_lost_with_the_server(server: Server, tmp_path: Path) -> None:
    (port,) = free_ports(1)  # nothing listens there for now
    data = Data.write(tmp_path)
    server.start(ENVIRONMENT, **OPTIONS)
    with Client(server.address) as client:
        webhook = client.webhooks.create(URL.format(port=port), ["job.created", "job.cancelled"], webhook_id="w")
        assert webhook.secret.startswith("whsec_")
        name = submit(client, data)
        client.cancel(name)
        until(lambda: client.get(name).state == "CANCELLED")
        until(lambda: client.webhooks.get("w").failures)
        assert client.webhooks.get("w").pending == 2
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    with receiving(port=port) as receiver:
        # Sent, and killed before that is recorded: on a slow machine before it serves.
        server.launch({**ENVIRONMENT, "MVPRUNE_FAILPOINTS": "record.before_commit=kill:1"}, **OPTIONS)
        until(lambda: server.process is not None and server.process.poll() is not None)
        assert len(receiver.got) == 1
        with closing(sqlite3.connect(server.home / "mvprune.sqlite")) as database, database:
            database.execute("UPDATE webhooks SET claim_us = 0")  # its time is over
        server.start(ENVIRONMENT, **OPTIONS)
        until(lambda: len(receiver.got) == 3)
        with Client(server.address) as client:
            until(lambda: [one.state for one in client.webhooks.deliveries("w")] == ["delivered"] * 2)
            cancelled, created = client.webhooks.deliveries("w")
            assert cancelled.attempts == 1
            assert created.attempts >= 2  # one failed before the kill, or more on a slow machine
    events = [got.event for got in receiver.got]
    assert [event["type"] for event in events] == [
        *["dev.mvprune.job.created.v1"] * 2,
        "dev.mvprune.job.cancelled.v1",
    ]
    assert events[0]["id"] == events[1]["id"]
    assert {event["subject"] for event in events} == {name}
    log = server.log()
    assert webhook.secret not in log
    assert f":{port}/hook" not in log


def signed(secret: str, at: int, body: bytes) -> dict[str, str]:
    """Headers that the server would send at a time."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"again.{at}.".encode() + body, "sha256")).decode()
    return {"webhook-id": "again", "webhook-timestamp": f"{at}", "webhook-signature": f"v1,{signature}"}


@pytest.mark.slow
def test_the_receiver_of_the_page(server: Server, tmp_path: Path) -> None:
    _, _, rest = PAGE.read_text().partition("```python\n")
    (tmp_path / "receiver.py").write_text(rest.partition("```")[0])
    (port,) = free_ports(1)
    server.start(ENVIRONMENT, **OPTIONS)
    with Client(server.address) as client:
        secret = client.webhooks.create(URL.format(port=port), ["job.created"], webhook_id="w").secret
        environment = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
        with subprocess.Popen(
            [sys.executable, tmp_path / "receiver.py"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                tested = until(lambda: (one := client.webhooks.test("w")).status and one)
                assert (tested.state, tested.status) == ("delivered", 204)
                name = submit(client, Data.write(tmp_path))
                until(lambda: [one.state for one in client.webhooks.deliveries("w")] == ["delivered"])
                client.cancel(name)
                (delivered,) = client.webhooks.deliveries("w")
                client.webhooks.redeliver("w", delivered.id)
                until(lambda: [one.attempts for one in client.webhooks.deliveries("w")] == [2])
                now = int(time.time())
                for at, status in ((now - 3600, 401), (now + 3600, 401), (now, 204)):  # only the time differs
                    body = b'{"id": "again", "type": "fresh", "subject": "s"}'
                    resent = HTTPConnection("127.0.0.1", port)
                    resent.request("POST", "/hook", body, signed(secret, at, body))
                    assert resent.getresponse().status == status, at - now
                client.webhooks.rotate_secret("w", old_ttl=60)
                assert client.webhooks.test("w").status == 204  # the old secret signs too
                client.webhooks.rotate_secret("w", old_ttl=0)
                assert client.webhooks.test("w").error == "HTTP 401"
                forged = HTTPConnection("127.0.0.1", port)
                headers = {"webhook-id": "i", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
                forged.request("POST", "/hook", b"{}", headers)
                assert forged.getresponse().status == 401
            finally:
                process.kill()
            assert process.stdout is not None
            lines = process.stdout.read().splitlines()
    assert [line.split()[0] for line in lines] == [
        "dev.mvprune.webhook.test.v1",
        "dev.mvprune.job.created.v1",
        "fresh",
        "dev.mvprune.webhook.test.v1",
    ]
    assert lines[1].split()[1] == name
