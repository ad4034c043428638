"""Every call that publishing makes to an S3 server fails once, before or after it took effect, or carries half of its
bytes: nothing that is half written is ever visible, and the next try succeeds."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.stores import multipart, open_store, s3
from mvprune_service.stores.base import BlobStore, StoreFull, StoreUnavailable
from mvprune_service.stores.layout import blob_key, publish, read_marker, verify

from ..neighbours import S3Server
from .conftest import keys_in

PART = 5 << 20  # the least that S3 takes


class Faulty:
    """A client whose call of this name, of which `number` were made before, is made by `fault`.

    Files are sent by threads, so that only the order of the calls of one name is the same in every run.
    """

    def __init__(self, client: Any, faulty: str, number: int, fault: Callable[..., Any]) -> None:
        self.made: list[str] = []
        self._client, self._faulty, self._number, self._fault = client, faulty, number, fault
        self._lock = threading.Lock()

    def get_paginator(self, name: str) -> Any:
        """One whose pages are a call."""
        return Pages(self, self._client.get_paginator(name), name)

    def __getattr__(self, name: str) -> Any:
        return lambda **kwargs: self.call(name, getattr(self._client, name), **kwargs)

    def call(self, name: str, real: Callable[..., Any], **kwargs: Any) -> Any:
        """Counts."""
        with self._lock:
            hit = name == self._faulty and self.made.count(name) == self._number
            self.made.append(name)
        return self._fault(name, real, **kwargs) if hit else real(**kwargs)


class Pages:
    """The pages of a listing, all asked for by one call."""

    def __init__(self, faulty: Faulty, paginator: Any, name: str) -> None:
        self._faulty, self._paginator, self._name = faulty, paginator, name

    def paginate(self, **kwargs: Any) -> list[Any]:
        pages: list[Any] = self._faulty.call(
            self._name, lambda **kwargs: [*self._paginator.paginate(**kwargs)], **kwargs
        )
        return pages


def answers(code: str) -> Callable[..., Any]:
    def fault(name: str, real: Callable[..., Any], **_: Any) -> Any:
        raise ClientError({"Error": {"Code": code, "Message": "injected"}}, name)

    return fault


def loses_the_answer(name: str, real: Callable[..., Any], **kwargs: Any) -> Any:
    real(**kwargs)
    raise EndpointConnectionError(endpoint_url="http://gone")


def sends_half(name: str, real: Callable[..., Any], **kwargs: Any) -> Any:
    if "Body" in kwargs:
        kwargs["Body"] = kwargs["Body"][: len(kwargs["Body"]) // 2]
    return real(**kwargs)


FAULTS = {
    "an error": answers("InternalError"),
    "a lost answer": loses_the_answer,
    "a short write": sends_half,
}


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir()
    files = []
    for name, data in (("weights", os.urandom(PART + 1000)), ("config.json", b"{}")):
        (folder / name).write_bytes(data)
        files.append({"path": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    (folder / "manifest.json").write_text(json.dumps({"files": files}))
    return folder


@pytest.fixture
def url(seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(multipart, "_PART", PART)
    monkeypatch.setattr(s3, "_MULTIPART", PART)
    return f"{seaweedfs.url}/{tmp_path.name}"


def check(store: BlobStore) -> None:
    """What is visible is whole."""
    for key in keys_in(store, ""):
        if not key.startswith("attempts/"):
            assert hashlib.sha256(store.get(key)).hexdigest() == key.rpartition("/")[2]
    committed = read_marker(store, "uid")
    if committed is not None:
        verify(store, committed)


CALLS = (
    *("head_object", "list_multipart_uploads", "create_multipart_upload", "list_parts", "upload_part"),
    *("complete_multipart_upload", "put_object"),
)
WRITES = ("upload_part", "put_object")


@pytest.mark.slow
def test_the_calls_of_publishing(url: str, artifact: Path) -> None:
    store: Any = open_store(url)
    store._client = counted = Faulty(store._client, "", 0, answers("InternalError"))
    publish(store, artifact, "uid")
    assert set(counted.made) == set(CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_any_call(url: str, artifact: Path, fault: str) -> None:
    for name in WRITES if fault == "a short write" else CALLS:
        for number in itertools.count():
            folder = f"{url}/{name}/{number}"
            store: Any = open_store(folder)
            store._client = faulty = Faulty(store._client, name, number, FAULTS[fault])
            with contextlib.suppress(StoreUnavailable):
                publish(store, artifact, "uid")
            if faulty.made.count(name) <= number:
                assert number > 0
                break
            again = open_store(folder)
            check(again)
            assert verify(again, publish(again, artifact, "uid"))
            again.remove_torn(system_clock() + 60 * SECOND)
            assert not unfinished(again), "nothing remains that no key leads to"


@pytest.mark.slow
@pytest.mark.parametrize("code", ["507", "XMinioStorageFull", "QuotaExceeded"])
def test_a_server_without_room(url: str, artifact: Path, code: str) -> None:
    store: Any = open_store(url)
    store._client = Faulty(store._client, "put_object", 0, answers(code))
    with pytest.raises(StoreFull, match=code):
        store.put("key", b"1")


def unfinished(store: Any) -> list[Any]:
    pages = store._client.get_paginator("list_multipart_uploads").paginate(Bucket=store._bucket, Prefix=store._prefix)
    return [upload for page in pages for upload in page.get("Uploads", [])]


@pytest.mark.slow
def test_a_blob_that_another_client_overwrote_is_replaced(url: str, artifact: Path) -> None:
    """Of the same size, in parts and as one."""
    store: Any = open_store(url)
    digest = publish(store, artifact, "uid-1")
    for name in ("weights", "config.json"):
        data = (artifact / name).read_bytes()
        key = blob_key(hashlib.sha256(data).hexdigest())
        store._client.put_object(Bucket=store._bucket, Key=store._name(key), Body=data[:-1] + b"?")
    publish(store, artifact, "uid-2")
    assert verify(store, digest)
