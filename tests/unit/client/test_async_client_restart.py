"""Both clients follow a job of a real server that is killed and started again: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server_path
from tests.integration.servers import Data, Server

from mvprune import AsyncClient, Client, JobCancelled, JobState, JobUpdate

CHATTY = {"PYTHONPATH": str(Path(__file__).parents[2] / "integration" / "chatty")}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "home")
    server.start(CHATTY)
    yield server
    server.close()


@dataclass
class Seen:
    """What one client saw of a job."""

    sequences: list[int] = field(default_factory=list)
    log: bytearray = field(default_factory=bytearray)
    states: list[JobState] = field(default_factory=list)
    ended_cancelled: bool = False

    def update(self, update: JobUpdate[Any]) -> None:
        self.sequences += [event.sequence for event in update.events]


async def _follow(client: AsyncClient, job: str) -> Seen:
    seen = Seen()

    async def watch() -> None:
        async for update in client.watch(job):
            seen.update(update)

    async def log() -> None:
        async for piece in client.logs(job, follow=True):
            seen.log += piece

    async def wait() -> None:
        with pytest.raises(JobCancelled):
            await client.wait(job, on_progress=lambda job: seen.states.append(job.state))

    await asyncio.gather(watch(), log(), wait())
    return seen


async def _follow_in_threads(client: Client, job: str) -> Seen:
    seen = Seen()

    def watch() -> None:
        for update in client.watch(job):
            seen.update(update)

    def log() -> None:
        for piece in client.logs(job, follow=True):
            seen.log.extend(piece)

    def wait() -> None:
        with pytest.raises(JobCancelled):
            client.wait(job, on_progress=lambda job: seen.states.append(job.state))

    await asyncio.gather(*(asyncio.to_thread(work) for work in (watch, log, wait)))
    return seen


@pytest.mark.slow
async def test_watch_wait_and_logs_over_a_kill(server: Server, tmp_path: Path) -> None:
    data = Data.write(tmp_path)
    with Client(server.address) as blocking:
        async with AsyncClient(server.address) as client:
            job = await client.submit(
                model="bert-base-uncased", task="text-classification", train=server_path(data.train),
                validation=server_path(data.validation),
                density=0.1, cpus=1,
            )  # fmt: skip
            async for update in job.watch():
                if update.job.state is JobState.RUNNING:
                    break
            followers = asyncio.gather(_follow(client, job.name), _follow_in_threads(blocking, job.name))
            await _log_grows(client, job.name)
            assert server.process is not None
            server.process.kill()
            await asyncio.to_thread(server.process.wait)
            await asyncio.to_thread(server.start, CHATTY)
            await _log_grows(client, job.name)
            await job.cancel()
            first, second = await followers
    for seen in (first, second):
        assert seen.sequences == list(range(1, seen.sequences[-1] + 1))
        assert seen.states[-1] is JobState.CANCELLED
    assert first.sequences == second.sequences
    assert first.log == second.log
    lines = first.log.decode().splitlines()
    steps = [int(line.split()[1]) for line in lines if line.startswith("step ")]
    assert steps == list(range(len(steps)))


async def _log_grows(client: AsyncClient, job: str) -> None:
    """Returns when the log is longer than it was."""
    now = sum([len(piece) async for piece in client.logs(job)])
    async for piece in client.logs(job, follow=True):
        now -= len(piece)
        if now < 0:
            return
