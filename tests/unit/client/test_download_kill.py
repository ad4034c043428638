"""Downloads by real processes from a real server, with a folder and with SeaweedFS as its store: killed at many
points, two at once, URLs that expire."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server_path
from tests.integration.servers import Data, Server
from tests.neighbours import S3Server
from tests.waiting import PATIENCE

from mvprune import Artifact, AsyncClient, Client
from mvprune.client import fetch, parts, source
from mvprune.v1 import artifact_pb2

KILOBYTES = 6000
PART_BYTES = 1 << 20
STAND_IN_ENV = {"PYTHONPATH": str(Path(__file__).parents[2] / "chaos" / "stand_in")}

# Downloads as `Client.download` does, prints the progress, and writes down every block before it is stored.
CHILD = f"""
import os, sys
from mvprune import Client
from mvprune.client import parts, source

address, job, directory, log = sys.argv[1:]
parts.PART_BYTES = {PART_BYTES}
blocks = source.Source.blocks
fetched = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def counted(self, file, start, end):
    for block in blocks(self, file, start, end):
        os.write(fetched, f"{{file.path}} {{start}} {{len(block)}}\\n".encode())
        start += len(block)
        yield block

source.Source.blocks = counted
with Client(address) as client:
    client.download(job, directory, lambda done, total: print(done, flush=True))
"""


@dataclass
class Published:
    """An artifact on a server, and a folder to download to."""

    server: Server
    artifact: Artifact
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CHILD, self.server.address, self.artifact.name, self.out, self.log]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def fetched(self) -> Counter[str]:
        """Bytes by file, over all processes."""
        found: Counter[str] = Counter()
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            path, _, count = line.split()
            found[path] += int(count)
        return found

    def check(self) -> None:
        """The folder holds the artifact, and nothing else is left."""
        there = {str(path.relative_to(self.out)): path for path in self.out.rglob("*") if path.is_file()}
        assert {path: hashlib.sha256(file.read_bytes()).hexdigest() for path, file in there.items()} == {
            file.path: file.sha256 for file in self.artifact.files
        }
        assert [path.name for path in self.folder.iterdir()] == ["out"]


@pytest.fixture(scope="module", params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def publisher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with the artifact of a job whose trainer writes random bytes."""
    folder = tmp_path_factory.mktemp(request.param)
    server, env, options = Server(folder / "home"), STAND_IN_ENV, {}
    if request.param == "s3":
        seaweedfs: S3Server = request.getfixturevalue("seaweedfs")
        env, options = env | seaweedfs.env, {"store": f"{seaweedfs.url}/download-kill"}
    server.start(env, **options)
    data = Data.write(folder)
    try:
        with Client(server.address) as client:
            job = client.submit(
                model="bert-base-uncased", task="text-classification", train=server_path(data.train),
                validation=server_path(data.validation),
                density=0.1, cpus=1, seed=KILOBYTES, max_steps=100,
            )  # fmt: skip
            yield server, client.artifact(job.wait(PATIENCE))
    finally:
        server.close()


@pytest.fixture
def published(publisher: Any, tmp_path: Path) -> Published:
    (tmp_path / "to").mkdir()
    return Published(*publisher, tmp_path / "to")


def _killed_at(process: subprocess.Popen[str], count: int) -> None:
    """Kills a download when it says that it has so many bytes."""
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= count:
            break
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_killed_at_many_points_it_goes_on_until_it_is_whole(published: Published) -> None:
    chance = random.Random(0)
    total = sum(file.size_bytes for file in published.artifact.files)
    points = [*sorted(chance.randrange(total) for _ in range(4)), total]
    for point in points:
        _killed_at(published.start(), point)
    last = published.start()
    last.communicate()
    assert last.returncode == 0
    published.check()
    in_flight = len(points) * fetch.CONNECTIONS * PART_BYTES
    for file in published.artifact.files:
        assert file.size_bytes <= published.fetched()[file.path] <= file.size_bytes + min(in_flight, file.size_bytes)
    assert sum(published.fetched().values()) < total + in_flight // 2

    before = published.fetched()
    again = published.start()
    again.communicate()
    assert again.returncode == 0
    assert published.fetched() == before  # it was there, and was only verified


@pytest.mark.slow
def test_what_is_finished_is_never_fetched_again(published: Published) -> None:
    total = sum(file.size_bytes for file in published.artifact.files)
    _killed_at(published.start(), total)
    last = published.start()
    last.communicate()
    assert published.fetched() == {file.path: file.size_bytes for file in published.artifact.files}
    published.check()


@pytest.mark.slow
def test_of_two_at_once_one_fetches_and_both_have_it(published: Published) -> None:
    both = [published.start(), published.start()]
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0]
    assert published.fetched() == {file.path: file.size_bytes for file in published.artifact.files}
    published.check()


def test_who_waits_takes_over_from_one_that_is_killed(published: Published) -> None:
    first, second = published.start(), published.start()
    fetching = first.stdout.readline() if first.stdout else ""
    _killed_at(first, int(fetching or 0) + PART_BYTES)
    second.communicate()
    assert second.returncode == 0
    published.check()


@pytest.mark.slow
def test_interrupted_it_ends_at_once_and_goes_on_later(published: Published) -> None:
    process = published.start()
    assert process.stdout is not None
    next(line for line in process.stdout if int(line) >= PART_BYTES)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    last = published.start()
    last.communicate()
    assert last.returncode == 0
    published.check()


@pytest.mark.slow
@pytest.mark.parametrize("publisher", ["folder"], indirect=True)
async def test_it_goes_on_with_a_server_that_was_killed_and_started_again(published: Published) -> None:
    server, seen = published.server, []

    def kill_once(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 1 and server.process is not None:
            server.process.kill()
            starting.append(asyncio.get_running_loop().run_in_executor(None, server.start, STAND_IN_ENV))

    starting: list[asyncio.Future[Any]] = []
    async with AsyncClient(server.address) as client:
        await client.download(published.artifact, published.out, kill_once)
    await asyncio.gather(*starting)
    assert seen[0] < seen[-1] == sum(file.size_bytes for file in published.artifact.files)
    published.check()


@pytest.mark.slow
@pytest.mark.parametrize("publisher", ["s3"], indirect=True)
def test_expired_urls_are_renewed(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    ask = source.Source._ask_for_urls

    def first_for_a_second(self: source.Source, paths: list[str]) -> dict[str, str]:
        asked.append(paths)
        if len(asked) > 1:
            return ask(self, paths)
        request = artifact_pb2.GenerateDownloadUrlsRequest(
            name=published.artifact.name, paths=paths, ttl={"seconds": 1}
        )
        answer = source.run(self._transport.call(self._transport.artifacts.GenerateDownloadUrls, request))
        time.sleep(2)  # the store has a clock of its own, of whole seconds
        return {found.path: found.url for found in answer.urls}

    monkeypatch.setattr(source.Source, "_ask_for_urls", first_for_a_second)
    monkeypatch.setattr(parts, "PART_BYTES", PART_BYTES)
    with Client(published.server.address) as client:
        client.download(published.artifact, published.out)
    published.check()
    files = sorted(file.path for file in published.artifact.files)
    renewed = [path for paths in asked[1:] for path in paths]
    assert sorted(renewed) == files, "each once, by whichever of its parts was first"
