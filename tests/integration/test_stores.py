"""One suite for every BlobStore, and the artifact layout on each."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pytest

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, ObjectNotFound, StoreDenied, StoreUnavailable
from mvprune_service.stores.layout import (
    SWEEP_KEY,
    ArtifactCorrupt,
    blob_key,
    manifest_key,
    marker_key,
    publish,
    read_marker,
    verify,
)

MEGABYTE = 1 << 20


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    if request.param == "local":
        return open_store((tmp_path / "a store").as_uri())
    server = request.getfixturevalue("seaweedfs")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{server.url}/{tmp_path.name}")


def keys_in(store: BlobStore, prefix: str) -> list[str]:
    return sorted(entry.key for entry in store.list(prefix))


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


def test_files_go_up_once(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"x" * (3 * MEGABYTE) + b"end")
    store.put_file("blobs/1", path)
    assert store.size("blobs/1") == 3 * MEGABYTE + 3
    assert store.read("blobs/1", 3 * MEGABYTE, 10) == b"end"
    store.put("blobs/1", b"y" * (3 * MEGABYTE + 3))
    store.put_file("blobs/1", path)  # the same key and size: nothing is sent
    assert store.read("blobs/1", 0, 1) == b"y"


def test_a_file_that_has_been_there_for_long_goes_up_anew(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"new")
    store.put("blobs/1", b"old")
    monkeypatch.setattr("mvprune_service.stores.local.FRESH_US", -5 * SECOND)
    monkeypatch.setattr("mvprune_service.stores.s3.FRESH_US", -5 * SECOND)
    store.put_file("blobs/1", path)
    assert store.get("blobs/1") == b"new"


def test_a_file_sent_in_parts(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.truncate(70 * MEGABYTE)
        file.seek(66 * MEGABYTE)
        file.write(b"middle")
    store.put_file("blobs/2", path)
    assert store.size("blobs/2") == 70 * MEGABYTE
    assert store.read("blobs/2", 66 * MEGABYTE - 1, 8) == b"\0middle\0"
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
    url = store.presign("a/file", 60)
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
        lambda: store.put_file("a", path),
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
    with pytest.raises(ValueError, match=r"store url|bucket|key"):
        open_store(url)


def test_credentials_in_a_store_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="no credentials") as caught:
        open_store("s3://key:very-secret@bucket/x?token=very-secret")
    assert "very-secret" not in str(caught.value)


# --- artifacts


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    (folder / "sub").mkdir(parents=True)
    contents = {"weights.safetensors": b"w" * 100_000, "config.json": b"{}", "sub/vocab.txt": b"a\nb\n", "empty": b""}
    for path, data in contents.items():
        (folder / path).write_bytes(data)
    write_manifest(folder, [entry(path, data) for path, data in contents.items()])
    return folder


def entry(path: str, data: bytes) -> dict[str, object]:
    return {"path": path, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "media_type": "x/y"}


def write_manifest(folder: Path, files: object) -> str:
    data = json.dumps({"files": files, "metrics": {"eval/accuracy": 0.9}}).encode()
    (folder / "manifest.json").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def test_a_published_artifact_is_found_and_verified(store: BlobStore, artifact: Path) -> None:
    assert read_marker(store, "uid-1") is None
    digest = publish(store, artifact, "uid-1")
    assert digest == hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest()
    assert read_marker(store, "uid-1") == digest
    assert verify(store, digest) == json.loads((artifact / "manifest.json").read_bytes())
    assert len(keys_in(store, "blobs/sha256/")) == 4
    assert publish(store, artifact, "uid-1") == digest


def test_the_first_result_of_an_attempt_stays(store: BlobStore, artifact: Path) -> None:
    first = publish(store, artifact, "uid-1")
    second = write_manifest(artifact, [entry("config.json", b"{}")])
    assert publish(store, artifact, "uid-1") == first
    assert read_marker(store, "uid-1") == first
    assert publish(store, artifact, "uid-2") == second


def test_damage_in_the_store_is_found(store: BlobStore, artifact: Path) -> None:
    digest = publish(store, artifact, "uid-1")
    weights = hashlib.sha256(b"w" * 100_000).hexdigest()
    store.put(blob_key(weights), b"w" * 99_999 + b"v")
    with pytest.raises(ArtifactCorrupt, match=r"weights\.safetensors: SHA-256"):
        verify(store, digest)
    store.put(blob_key(weights), b"w" * 99_999)
    with pytest.raises(ArtifactCorrupt, match=r"weights\.safetensors: 99999 bytes"):
        verify(store, digest)
    store.delete(blob_key(weights))
    with pytest.raises(ArtifactCorrupt, match=r"weights\.safetensors: blob .* missing"):
        verify(store, digest)
    store.put(manifest_key(digest), b"{}")
    with pytest.raises(ArtifactCorrupt, match="other content"):
        verify(store, digest)
    store.delete(manifest_key(digest))
    with pytest.raises(ArtifactCorrupt, match="missing"):
        verify(store, digest)
    store.put(marker_key("uid-1"), b"half a mar")
    with pytest.raises(ArtifactCorrupt, match="JSON"):
        read_marker(store, "uid-1")


class Cut:
    """A store whose connection breaks before the call with this number."""

    def __init__(self, store: BlobStore, calls: int) -> None:
        self._store = store
        self._left = calls

    def __getattr__(self, name: str):
        found = getattr(self._store, name)
        if name not in ("put", "put_file"):
            return found

        def call(*args: object, **kwargs: object) -> object:
            if self._left == 0:
                raise StoreUnavailable("cut")
            self._left -= 1
            return found(*args, **kwargs)

        return call


def test_an_upload_cut_anywhere_leaves_no_marker_and_can_be_repeated(tmp_path: Path, artifact: Path) -> None:
    calls = 10  # the four files and a second look at each, the manifest, the marker
    for cut in range(calls):
        store = open_store((tmp_path / f"store-{cut}").as_uri())
        with pytest.raises(StoreUnavailable, match="cut"):
            publish(Cut(store, cut), artifact, "uid")
        assert read_marker(store, "uid") is None
        assert len(keys_in(store, "")) == min(cut, 4) + (cut == 9)
        assert verify(store, publish(store, artifact, "uid"))


def test_nothing_is_committed_while_the_store_is_swept(store: BlobStore, artifact: Path) -> None:
    store.put(SWEEP_KEY, b"")
    with pytest.raises(StoreUnavailable, match="swept"):
        publish(store, artifact, "uid")
    assert read_marker(store, "uid") is None
    store.delete(blob_key(hashlib.sha256(b"w" * 100_000).hexdigest()))
    store.delete(SWEEP_KEY)
    assert verify(store, publish(store, artifact, "uid"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no files"),
        ({"a": 1}, "no files"),
        ([{"path": "config.json", "size_bytes": 2}], "needs path"),
        ([{"path": "config.json", "size_bytes": 2, "sha256": "../../x"}], "needs path"),
        ([entry("config.json", b"[]")], "config.json: SHA-256"),
        ([entry("config.json", b"{ }")], "config.json: 2 bytes"),
        ([entry("missing", b"")], "not in the folder"),
        ([entry("../secret", b"secret")], "leaves"),
        ([entry("/etc/passwd", b"")], "leaves"),
        ([entry("sub//vocab.txt", b"a\nb\n")], "leaves"),
        ([entry("sub\\vocab.txt", b"a\nb\n")], "leaves"),
        ([entry("config.json", b"{}"), entry("CONFIG.json", b"{}")], "collides"),
        ([entry("manifest.json", b"")], "collides"),
    ],
)
def test_manifests_that_are_refused(tmp_path: Path, artifact: Path, files: object, message: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    write_manifest(artifact, files)
    store = open_store((tmp_path / "store").as_uri())
    with pytest.raises(ArtifactCorrupt, match=message):
        publish(store, artifact, "uid")
    assert keys_in(store, "") == []
    assert read_marker(store, "uid") is None
