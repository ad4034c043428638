"""Jobs as print and notebooks show them."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser

import pytest
from tests.unit.client.scripted_server import Fake, always, job

from mvprune import AsyncClient, Client
from mvprune.v1 import job_pb2


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            job(progress=job_pb2.Progress(phase="pruning", step=120, total_steps=400)),
            "job j1: RUNNING, pruning 120/400; sst2 by movement, keeps 3.0 % of bert-base-uncased",
        ),
        (
            job("FAILED", failure=job_pb2.Failure(reason="INVALID_MODEL", message="no\nweights")),
            "job j1: FAILED, INVALID_MODEL; sst2 by movement, keeps 3.0 % of bert-base-uncased",
        ),
    ],
)
def test_a_job_prints_as_one_line(
    fake: Fake, client: Client, capsys: pytest.CaptureFixture[str], message: job_pb2.Job, line: str
) -> None:
    fake.answers["GetJob"] = always(message)
    found = client.get("j1")
    print(found)
    assert capsys.readouterr().out == f"{line}\n"
    assert "target_density=0.03" in repr(found)

    async def ask() -> str:
        async with AsyncClient(fake.address) as other:
            return str(await other.get("j1"))

    assert asyncio.run(ask()) == line


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_shows_a_table_with_what_the_server_sent_escaped(fake: Fake, client: Client) -> None:
    message = job("SUCCEEDED", display_name="<script>alert(1)</script>", metrics={"eval/accuracy": 0.875})
    message.spec.model = "/models/<b>&x"
    fake.answers["GetJob"] = always(message)
    cells = _Cells()
    cells.feed(client.get("j1")._repr_html_())
    assert cells.tags == {"table", "tr", "th", "td"}
    rows = dict(zip(cells.texts[::2], cells.texts[1::2], strict=True))
    assert rows.pop("created").startswith("2026-01-31 12:00:00 UTC, ")
    assert rows == {
        "job": "j1",
        "name": "<script>alert(1)</script>",
        "state": "SUCCEEDED",
        "model": "/models/<b>&x",
        "task": "sst2",
        "method": "movement",
        "density": "keeps 3.0 % of the prunable weights",
        "attempt": "1",
        "metrics": "eval/accuracy 0.8750",
    }
