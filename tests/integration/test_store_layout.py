"""How artifacts lie in a store, in every kind of it."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import (
    COLLECTION_KEY,
    ArtifactCorrupt,
    blob_key,
    manifest_key,
    marker_key,
    publish,
    read_marker,
    verify,
)

from .conftest import keys_in
from .cut import Cut
from .together import Together


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
    store.put(marker_key("uid-1"), b'{"manifest_sha256": "../x"}')
    with pytest.raises(ArtifactCorrupt, match="names no manifest"):
        read_marker(store, "uid-1")
    store.put(marker_key("uid-1"), b"half a mar")
    with pytest.raises(ArtifactCorrupt, match="JSON"):
        read_marker(store, "uid-1")


@pytest.mark.parametrize("damage", [b"v" * 100_000, b"v", b""])
def test_the_next_upload_repairs_what_cannot_be_verified(store: BlobStore, artifact: Path, damage: bytes) -> None:
    digest = publish(store, artifact, "uid-1")
    weights = hashlib.sha256(b"w" * 100_000).hexdigest()
    store.put(blob_key(weights), damage)
    store.put(manifest_key(digest), b"{}")
    for _ in range(2):
        with pytest.raises(ArtifactCorrupt):
            verify(store, digest)
    assert publish(store, artifact, "uid-2") == digest
    assert verify(store, digest)


def test_uploads_that_race_repair_it_together(store: BlobStore, artifact: Path) -> None:
    digest = hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest()
    store.put(blob_key(hashlib.sha256(b"w" * 100_000).hexdigest()), b"v" * 100_000)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda number: publish(store, artifact, f"uid-{number}"), range(8)))
    assert done == [digest] * 8
    assert verify(store, digest)


def test_an_upload_cut_anywhere_leaves_no_marker_and_can_be_repeated(tmp_path: Path, artifact: Path) -> None:
    calls = 10  # the four files and a second look at each, the manifest, the marker
    for cut in range(calls):
        store = open_store((tmp_path / f"store-{cut}").as_uri())
        with pytest.raises(StoreUnavailable, match="cut"):
            publish(Cut(store, cut, "put", "put_file"), artifact, "uid")
        assert read_marker(store, "uid") is None
        assert len(keys_in(store, "")) == min(cut, 4) + (cut == 9)
        assert verify(store, publish(store, artifact, "uid"))


def test_files_are_sent_and_read_back_side_by_side(store: BlobStore, artifact: Path) -> None:
    together = Together(store, 4, "put_file", "read")
    assert verify(together, publish(together, artifact, "uid"))  # else the barrier would break


def test_what_is_not_confirmed_is_whole_but_for_its_marker(store: BlobStore, artifact: Path) -> None:
    def refuse() -> None:
        raise StoreUnavailable("not ours any more")

    with pytest.raises(StoreUnavailable, match="not ours"):
        publish(store, artifact, "uid", refuse)
    assert read_marker(store, "uid") is None
    assert verify(store, hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest())


def test_nothing_is_committed_while_garbage_is_collected(store: BlobStore, artifact: Path) -> None:
    store.put(COLLECTION_KEY, b"")
    with pytest.raises(StoreUnavailable, match="garbage-collected"):
        publish(store, artifact, "uid")
    assert read_marker(store, "uid") is None
    store.delete(blob_key(hashlib.sha256(b"w" * 100_000).hexdigest()))
    store.delete(COLLECTION_KEY)
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
        ([entry("sub/vocab\n.txt", b"a\nb\n")], "leaves"),
        ([entry("", b"")], "leaves"),
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
