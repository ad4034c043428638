"""mvpctl audit: a table, and what comes while it follows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always

from mvprune.cli import audit
from mvprune.v1 import admin_pb2


def entry(number: int, code: str = "OK") -> admin_pb2.AuditEntry:
    made = admin_pb2.AuditEntry(
        name=f"projects/p/auditEntries/e{number}",
        principal="token-a",
        method="CancelJob",
        code=code,
        resource="projects/p/jobs/j1",
        address="10.0.0.7",
    )
    made.create_time.FromJsonString(f"2026-01-31T12:00:0{number}Z")
    return made


def test_a_table(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["ListAuditEntries"] = always(
        admin_pb2.ListAuditEntriesResponse(entries=[entry(2), entry(1, "ABORTED")])
    )
    heading, first, second = mvpctl("audit", "--filter", "code != OK", "--limit", "5").out.splitlines()
    assert heading.split() == ["TIME", "(UTC)", "PRINCIPAL", "METHOD", "CODE", "RESOURCE", "ADDRESS", "REQUEST"]
    assert first.split() == ["2026-01-31", "12:00:02", "token-a", "CancelJob", "OK", "projects/p/jobs/j1", "10.0.0.7"]
    assert "ABORTED" in second
    asked = fake.asked("ListAuditEntries")
    assert (asked.parent, asked.filter, asked.page_size) == ("projects/default", "code != OK", 5)
    assert mvpctl("audit", "--follow", "--order-by", "create_time").code == 2


def test_what_comes_is_shown_once_though_it_comes_late(
    fake: Fake, mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = itertools.chain([[entry(3), entry(1)], [entry(1), entry(2), entry(3)], [entry(2), entry(4)]])
    asked = []

    def answer(request: Any, context: Any) -> admin_pb2.ListAuditEntriesResponse:
        asked.append(request.filter)
        return admin_pb2.ListAuditEntriesResponse(entries=next(answers))

    pauses = iter([None, None])

    def pause(seconds: float) -> None:
        if next(pauses, "over") == "over":
            raise KeyboardInterrupt

    fake.answers["ListAuditEntries"] = answer
    monkeypatch.setattr(audit.time, "sleep", pause)
    lines = mvpctl("audit", "-f", "--quiet", "--filter", "code = OK OR code = ABORTED").out.split()
    assert lines == ["e1", "e3", "e2", "e4"]
    since = 'code = OK OR code = ABORTED AND create_time >= "2026-01-31T11:59:03+00:00"'
    assert asked == ["code = OK OR code = ABORTED", since, since]
