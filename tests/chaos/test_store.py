"""S3 that is away for a while, breaks in the middle of a multipart upload, answers slowly. Nothing fails of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from ..neighbours import S3Server
from .harness import Client, Load, Record, Server, eventually
from .invariants import check
from .proxy import Proxy

MULTIPART = 70 << 10  # kilobytes: more than is sent in one piece


class Plane:
    """A server whose store is reached through a proxy."""

    def __init__(self, folder: Path, s3: S3Server, proxy: Proxy) -> None:
        self.proxy = proxy
        self.url = f"{s3.url}/{folder.name}"
        self.server = Server(folder, store=self.url)
        self.server.start(environment={**s3.env, "AWS_ENDPOINT_URL_S3": f"http://{proxy.address}"})
        self.client = Client(self.server)

    def submit(self, name: str, **job: Any) -> Record:
        return Record(name, self.client.create(name, **job).name)

    def phase(self, record: Record) -> str:
        return str(self.client.get(record.name).progress.phase)


@pytest.fixture
def plane(tmp_path: Path, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plane]:
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)  # for the invariants, which look into the store
    with Proxy(seaweedfs.env["AWS_ENDPOINT_URL_S3"].removeprefix("http://")) as proxy:
        plane = Plane(tmp_path, seaweedfs, proxy)
        yield plane
        plane.client.close()
        plane.server.kill()


@pytest.mark.timeout(600)
def test_it_is_away_for_a_while(plane: Plane) -> None:
    with Load(plane.server, churn=False) as load:
        for _ in range(2):
            time.sleep(2)
            plane.proxy.refuse()
            time.sleep(4)
            plane.proxy.refusing = False
            load.check()
        load.stop()
    assert check(plane.server, load.records, timeout=180).keys() == {"SUCCEEDED"}


@pytest.mark.timeout(600)
def test_it_breaks_in_the_middle_of_a_multipart_upload(plane: Plane) -> None:
    plane.proxy.cut_after = 30 << 20
    record = plane.submit("large", kilobytes=MULTIPART)
    eventually(lambda: plane.proxy.refusing, 60, plane.server.tail)
    time.sleep(3)
    plane.proxy.refusing = False
    assert check(plane.server, [record], timeout=180) == {"SUCCEEDED": 1}
    bucket, prefix = plane.url.removeprefix("s3://").split("/")
    blobs = boto3.client("s3", region_name="us-east-1").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/blobs/")
    assert sorted(item["Size"] for item in blobs["Contents"]) == [2, MULTIPART << 10], "no half of a file is visible"


@pytest.mark.timeout(600)
def test_it_answers_slowly(plane: Plane) -> None:
    plane.proxy.delay = 0.5
    with Load(plane.server, churn=False) as load:
        time.sleep(8)
        load.stop()
    assert check(plane.server, load.records, timeout=180).keys() == {"SUCCEEDED"}
