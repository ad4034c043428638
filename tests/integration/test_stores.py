"""One suite for every BlobStore."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BadSource, BlobStore, ObjectNotFound, StoreDenied, StoreUnavailable
from mvprune_workers.transfer import transfer

from .conftest import keys_in

MEGABYTE = 1 << 20


# --- objects


def test_what_was_put_is_read_and_replaced_and_deleted(store: BlobStore) -> None:
    assert store.put("a/b.json", b"one")
    assert store.put("a/b.json", b"three")
    assert store.get("a/b.json") == b"three"
    assert store.size("a/b.json") == 5
    store.delete("a/b.json")
    store.delete("a/b.json")
    assert store.size("a/b.json") is None


def test_absent_objects(store: BlobStore) -> None:
    store.put("a/b/c", b"")
    for key in ("nothing", "a/b", "a/b/c/d"):
        assert store.size(key) is None
        with pytest.raises(ObjectNotFound, match=key):
            store.get(key)
        with pytest.raises(ObjectNotFound):
            store.read(key, 0, 1)
        store.delete(key)
    assert store.get("a/b/c") == b""


def test_ranges(store: BlobStore) -> None:
    data = bytes(range(256)) * 40
    store.put("blob", data)
    assert store.read("blob", 0, 10) == data[:10]
    assert store.read("blob", 1000, 500) == data[1000:1500]
    assert store.read("blob", len(data) - 3, 100) == data[-3:]
    assert store.read("blob", len(data), 100) == b""
    assert store.read("blob", 1 << 40, 100) == b""
    assert store.read("blob", (1 << 63) - 1, 100) == b""
    store.put("empty", b"")
    assert store.read("empty", 0, 10) == b""
    for offset, limit in ((-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="offset"):
            store.read("blob", offset, limit)


def test_only_one_of_many_racing_writers_wins(store: BlobStore) -> None:
    count = 32
    start = threading.Barrier(count)

    def write(number: int) -> bool:
        start.wait()
        return store.put("attempts/1/RESULT.json", b"%d" % number, if_absent=True)

    with ThreadPoolExecutor(count) as pool:
        won = list(pool.map(write, range(count)))
    assert won.count(True) == 1
    assert store.get("attempts/1/RESULT.json") == b"%d" % won.index(True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_go_up_once(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"x" * (3 * MEGABYTE) + b"end")
    store.put_file("blobs/1", path, digest(path))
    assert store.size("blobs/1") == 3 * MEGABYTE + 3
    assert store.read("blobs/1", 3 * MEGABYTE, 10) == b"end"
    before = version(store, tmp_path, "blobs/1")
    store.put_file("blobs/1", path, digest(path))  # the same content: nothing is sent
    assert version(store, tmp_path, "blobs/1") == before


def version(store: BlobStore, tmp_path: Path, key: str) -> object:
    """What changes whenever an object is written."""
    if store.url.startswith("file:"):
        return (tmp_path / "a store" / key).stat().st_ino
    time.sleep(1.1)  # S3 tells seconds
    return next(iter(store.list(key))).modified_us


@pytest.mark.parametrize("megabytes", [0, 1, pytest.param(70, marks=pytest.mark.slow)])
def test_a_file_whose_content_is_not_what_lies_there_goes_up_anew(
    store: BlobStore, tmp_path: Path, megabytes: int
) -> None:
    """However young and of whatever size it is."""
    path, data = tmp_path / "weights", bytearray(b"x" * (megabytes * MEGABYTE) + b"right")
    path.write_bytes(data)
    data[-1:] = b"?"
    store.put("blobs/1", bytes(data))
    for _ in range(2):
        store.put_file("blobs/1", path, digest(path))
        assert store.size("blobs/1") == len(data)
        assert store.read("blobs/1", len(data) - 5, 10) == b"right"


def test_a_file_is_not_sent_under_the_name_of_another_content(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"before")
    before = digest(path)
    path.write_bytes(b"after!")
    with pytest.raises(BadSource, match=f"weights has the SHA-256 {digest(path)}, not {before}"):
        store.put_file("blobs/1", path, before)
    assert keys_in(store, "") == []
    with pytest.raises(FileNotFoundError):
        store.put_file("blobs/1", tmp_path / "none", before)


def test_a_file_that_has_been_there_for_long_goes_up_anew(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    store.put_file("blobs/1", path, digest(path))
    before = version(store, tmp_path, "blobs/1")
    monkeypatch.setattr("mvprune_service.stores.local.FRESH_US", -5 * SECOND)
    monkeypatch.setattr("mvprune_service.stores.s3.FRESH_US", -5 * SECOND)
    store.put_file("blobs/1", path, digest(path))
    assert version(store, tmp_path, "blobs/1") != before


def test_a_file_sent_in_parts(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(70 * MEGABYTE)
        file.seek(66 * MEGABYTE)
        file.write(b"middle")
    store.put_file("blobs/2", path, digest(path))
    assert store.size("blobs/2") == 70 * MEGABYTE
    assert store.read("blobs/2", 66 * MEGABYTE - 1, 8) == b"\0middle\0"
    before = version(store, tmp_path, "blobs/2")
    store.put_file("blobs/2", path, digest(path))
    assert version(store, tmp_path, "blobs/2") == before, "nothing is sent again"
    store.delete("blobs/2")


def test_listing_by_any_beginning(store: BlobStore) -> None:
    keys = ["a-b", "a.b", "a/b", "a/b2", "aB", "ab", "b/c/d", "blobs/sha256/ab/abcd"]
    for key in keys:
        store.put(key, b"1")
    assert keys_in(store, "") == keys
    assert keys_in(store, "a/") == ["a/b", "a/b2"]
    assert keys_in(store, "a/b") == ["a/b", "a/b2"]
    assert keys_in(store, "ab") == ["ab"]
    assert keys_in(store, "blobs/sha256/a") == ["blobs/sha256/ab/abcd"]
    assert keys_in(store, "c") == []
    assert keys_in(store, "c/d") == []


def test_a_listing_tells_size_and_age(store: BlobStore) -> None:
    before = system_clock()
    store.put("a/b", b"123")
    (entry,) = store.list("a/")
    assert (entry.key, entry.size) == ("a/b", 3)
    assert before - 2 * SECOND < entry.modified_us < system_clock() + 2 * SECOND  # S3 tells seconds


def test_torn_uploads_are_removed_once_they_are_old(store: BlobStore, tmp_path: Path) -> None:
    store.put("a", b"1")
    torn = tear(store, tmp_path)
    store.remove_torn(system_clock() - 60 * SECOND)
    assert torn()
    store.remove_torn(system_clock() + 60 * SECOND)
    assert not torn()
    assert keys_in(store, "") == ["a"]


def tear(store: BlobStore, tmp_path: Path) -> Callable[[], bool]:
    """Leaves an upload behind that never ended; returns what tells whether it is there."""
    if store.url.startswith("file:"):
        staged = tmp_path / "a store" / ".staging" / "half"
        staged.write_bytes(b"half")
        return staged.exists
    client = boto3.client("s3", region_name="us-east-1")
    bucket, prefix = store.url.removeprefix("s3://").split("/", 1)
    client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}/half")
    return lambda: bool(client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads"))


def test_listing_goes_past_one_page(store: BlobStore) -> None:
    keys = sorted(f"many/{number}" for number in range(1005))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    assert keys_in(store, "many/") == keys


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.hidden", "a b", "a\nb", "é", "a" * 801]
)
def test_malformed_keys_are_refused(store: BlobStore, key: str) -> None:
    for call in (store.get, store.size, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(ValueError, match="key"):
            call(key)
    if key not in ("", "a/"):
        with pytest.raises(ValueError, match="key"):
            store.list(key)


def test_presigned_urls(store: BlobStore) -> None:
    store.put("a/file", b"0123456789")
    url = store.presign("a/file", 3600)
    if store.url.startswith("file:"):
        assert url is None
        return
    assert url is not None
    with urlopen(url) as response:  # noqa: S310
        assert response.read() == b"0123456789"
    with urlopen(Request(url, headers={"Range": "bytes=2-5"})) as response:  # noqa: S310
        assert (response.status, response.read()) == (206, b"2345")
    with pytest.raises(HTTPError, match="403"):
        urlopen(url.replace("a/file", "a/other"))  # noqa: S310


def test_a_store_is_opened_again_by_its_url(store: BlobStore) -> None:
    store.put("a", b"1")
    assert open_store(store.url).get("a") == b"1"
    for shown in (store.url, repr(store), repr(vars(store))):
        assert "testtest" not in shown


# --- stores that are away, and bad addresses


def test_a_folder_that_is_away(tmp_path: Path) -> None:
    root = tmp_path / "mount"
    store = open_store(root.as_uri())
    store.put("a", b"1")
    root.rename(tmp_path / "unmounted")
    calls: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.read("a", 0, 1),
        lambda: store.size("a"),
        lambda: store.delete("a"),
        lambda: store.put("a", b"2"),
        lambda: list(store.list("")),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="mount"):
            call()
    assert not root.exists()


def test_a_worker_makes_no_store_where_a_disk_is_not_mounted(tmp_path: Path) -> None:
    """What it published there would be hidden as soon as the disk is back."""
    root = tmp_path / "mount"
    root.mkdir()
    calls: list[Callable[[BlobStore], object]] = [
        lambda store: store.put("a", b"1"),
        lambda store: store.put_file("a", Path(__file__), digest(Path(__file__))),
        lambda store: store.get("a"),
        lambda store: store.size("a"),
        lambda store: list(store.list("")),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="mount"):
            transfer(root.as_uri(), call, print, 0, threading.Event())
    assert list(root.iterdir()) == []
    open_store(root.as_uri())
    transfer(root.as_uri(), calls[0], print, 0, threading.Event())


def test_a_bucket_server_that_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, closed_port: int) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    store = open_store("s3://artifacts")
    path = tmp_path / "file"
    path.write_bytes(b"1")
    calls: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.put("a", b"2", if_absent=True),
        lambda: store.put_file("a", path, digest(path)),
        lambda: list(store.list("")),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        errors = [task.exception() for task in [pool.submit(call) for call in calls]]
    for error in errors:
        assert type(error) is StoreUnavailable
        assert str(closed_port) in str(error)
        assert "very-secret" not in str(error)


def test_refused_credentials_and_missing_buckets(seaweedfs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreUnavailable, match="no-such-bucket") as caught:
        open_store("s3://no-such-bucket").get("a")
    assert caught.type is StoreUnavailable
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(StoreDenied, match=r"SignatureDoesNotMatch|AccessDenied") as denied:
        open_store(seaweedfs.url).get("a")
    assert "wrong-secret" not in str(denied.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/folder",
        "file:relative",
        "file://",
        "file://host/folder",
        "http://x/y",
        "s3://",
        "s3://UPPER/x",
        "s3://b/../c",
    ],
)
def test_bad_store_urls(url: str) -> None:
    with pytest.raises(ValueError, match=r"store must|bucket must|key must"):
        open_store(url)


def test_credentials_in_a_store_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="without credentials") as caught:
        open_store("s3://key:very-secret@bucket/x?token=very-secret")
    assert "very-secret" not in str(caught.value)
