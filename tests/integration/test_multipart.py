"""Files in parts, to a real S3 server that breaks off where the test says."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from mvprune_service.stores import open_store
from mvprune_service.stores.base import StoreUnavailable
from mvprune_service.stores.s3 import S3Store

from ..neighbours import S3Server

PART = 16 << 20


@pytest.fixture
def url(seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    return f"{seaweedfs.url}/{tmp_path.name}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Four parts and a half, no two alike."""
    path = tmp_path / "weights"
    path.write_bytes(b"".join(os.urandom(1 << 20) * 16 for _ in range(4)) + b"end" * 1000)
    return path


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Parts:
    """Numbers of the parts that a store sends; it loses its connection for those in `lost`."""

    def __init__(self, store: Any, lost: frozenset[int] = frozenset()) -> None:
        self.sent: list[int] = []
        self._lost = lost
        assert isinstance(store, S3Store)
        store._client.meta.events.register("before-parameter-build.s3.UploadPart", self._part)

    def _part(self, params: dict[str, Any], **_: Any) -> None:
        if params["PartNumber"] in self._lost:
            raise EndpointConnectionError(endpoint_url="http://gone")
        self.sent.append(params["PartNumber"])


@pytest.mark.slow
def test_an_upload_that_was_cut_off_is_gone_on_with(url: str, file: Path) -> None:
    first = open_store(url)
    before = Parts(first, lost=frozenset({3, 5}))
    with pytest.raises(StoreUnavailable):
        first.put_file("blobs/1", file, digest(file))
    assert sorted(before.sent) == [1, 2, 4]
    assert first.size("blobs/1") is None, "no half of a file is visible"

    second = open_store(url)
    after = Parts(second)
    second.put_file("blobs/1", file, digest(file))
    assert sorted(after.sent) == [3, 5]
    assert second.get("blobs/1") == file.read_bytes()
    bucket, prefix = url.removeprefix("s3://").split("/")
    client = boto3.client("s3", region_name="us-east-1")
    assert not client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads")


@pytest.mark.slow
def test_a_part_that_arrived_with_other_content_is_sent_again(url: str, file: Path) -> None:
    store = open_store(url)
    Parts(store, lost=frozenset({2, 3, 4, 5}))
    with pytest.raises(StoreUnavailable):
        store.put_file("blobs/1", file, digest(file))
    with file.open("r+b") as changed:
        changed.write(b"X")
    again = open_store(url)
    parts = Parts(again)
    again.put_file("blobs/1", file, digest(file))
    assert sorted(parts.sent) == [1, 2, 3, 4, 5]
    assert again.get("blobs/1") == file.read_bytes()


@pytest.mark.slow
def test_an_upload_that_another_process_completed_is_done(url: str, file: Path) -> None:
    slow, fast = open_store(url), open_store(url)

    def overtake(params: dict[str, Any], **_: Any) -> None:
        if params["PartNumber"] == 5 and fast.size("blobs/1") is None:
            fast.put_file("blobs/1", file, digest(file))

    assert isinstance(slow, S3Store)
    slow._client.meta.events.register("before-parameter-build.s3.UploadPart", overtake)
    slow.put_file("blobs/1", file, digest(file))
    assert slow.get("blobs/1") == file.read_bytes()
