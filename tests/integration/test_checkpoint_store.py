"""Checkpoints in every kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.checkpoints import (
    checkpoint_prefix,
    delete_checkpoint,
    fetch_checkpoint,
    put_checkpoint,
)
from mvprune_service.stores.layout import ArtifactCorrupt

from .cut import Cut

CONTENTS = {"dense.safetensors": b"d" * 50_000, "pruning.safetensors": b"p" * 100_000, "sub/empty": b""}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    for path, data in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def keys(store: BlobStore, prefix: str = "") -> set[str]:
    return {entry.key for entry in store.list(prefix)}


def test_what_was_put_is_fetched(store: BlobStore, checkpoint: Path, tmp_path: Path) -> None:
    digest = put_checkpoint(store, checkpoint, "uid-1", 7)
    assert put_checkpoint(store, checkpoint, "uid-1", 7) == digest
    assert keys(store) == {
        "attempts/uid-1/checkpoints/7/manifest.json",
        *(f"attempts/uid-1/checkpoints/7/{path}" for path in CONTENTS),
    }
    target = tmp_path / "fetched"
    fetch_checkpoint(store, "uid-1", 7, digest, target)
    found = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert found == CONTENTS
    assert {path.name for path in tmp_path.iterdir()} <= {"checkpoint", "fetched", "a store"}


def test_damage_is_found_and_nothing_is_left(store: BlobStore, checkpoint: Path, tmp_path: Path) -> None:
    digest = put_checkpoint(store, checkpoint, "uid-1", 7)
    prefix, target = checkpoint_prefix("uid-1", 7), tmp_path / "fetched"

    def refused(words: str) -> None:
        with pytest.raises(ArtifactCorrupt, match=words):
            fetch_checkpoint(store, "uid-1", 7, digest, target)
        assert {path.name for path in tmp_path.iterdir()} <= {"checkpoint", "a store"}

    store.put(f"{prefix}pruning.safetensors", b"p" * 99_999 + b"q")
    refused(r"pruning\.safetensors: SHA-256")
    store.put(f"{prefix}pruning.safetensors", b"p" * 99_999)
    refused(r"pruning\.safetensors: 99999 bytes")
    store.delete(f"{prefix}pruning.safetensors")
    refused(r"pruning\.safetensors: .* missing")
    store.put(f"{prefix}manifest.json", b"{}")
    refused("other content")
    store.delete(f"{prefix}manifest.json")
    refused("missing")


def test_the_next_upload_repairs_a_damaged_checkpoint(store: BlobStore, checkpoint: Path, tmp_path: Path) -> None:
    digest = put_checkpoint(store, checkpoint, "uid-1", 7)
    store.put(f"{checkpoint_prefix('uid-1', 7)}pruning.safetensors", b"q" * 100_000)
    assert put_checkpoint(store, checkpoint, "uid-1", 7) == digest
    fetch_checkpoint(store, "uid-1", 7, digest, tmp_path / "fetched")


def test_one_step_is_deleted_and_no_other(store: BlobStore, checkpoint: Path) -> None:
    for uid, step in (("uid-1", 7), ("uid-1", 70), ("uid-2", 7)):
        put_checkpoint(store, checkpoint, uid, step)
    delete_checkpoint(store, "uid-1", 7)
    assert keys(store, "attempts/uid-1/checkpoints/7/") == set()
    assert len(keys(store)) == 2 * (len(CONTENTS) + 1)
    delete_checkpoint(store, "uid-1", 7)


def test_a_deletion_that_is_cut_leaves_no_manifest(checkpoint: Path, tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    digest = put_checkpoint(store, checkpoint, "uid-1", 7)
    with pytest.raises(StoreUnavailable, match="cut"):
        delete_checkpoint(Cut(store, 1, "delete"), "uid-1", 7)
    with pytest.raises(ArtifactCorrupt, match="missing"):
        fetch_checkpoint(store, "uid-1", 7, digest, tmp_path / "fetched")
    delete_checkpoint(store, "uid-1", 7)
    assert keys(store) == set()


def test_an_upload_cut_anywhere_is_no_checkpoint_and_can_be_repeated(checkpoint: Path, tmp_path: Path) -> None:
    writes = len(CONTENTS) + 1
    for cut in range(writes):
        store = open_store((tmp_path / f"store-{cut}").as_uri())
        with pytest.raises(StoreUnavailable, match="cut"):
            put_checkpoint(Cut(store, cut, "put", "put_file"), checkpoint, "uid-1", 7)
        assert len(keys(store)) == cut
        assert f"{checkpoint_prefix('uid-1', 7)}manifest.json" not in keys(store)
        fetch_checkpoint(store, "uid-1", 7, put_checkpoint(store, checkpoint, "uid-1", 7), tmp_path / f"fetched-{cut}")


def test_a_download_cut_anywhere_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    digest = put_checkpoint(store, checkpoint, "uid-1", 7)
    target = tmp_path / "fetched"
    cut, whole = 0, False
    while not whole:
        try:
            fetch_checkpoint(Cut(store, cut, "get", "read"), "uid-1", 7, digest, target)
            whole = True
        except StoreUnavailable:
            assert not target.exists()
            assert not list(tmp_path.glob("*.part"))
            cut += 1
    assert cut == 6, "the manifest, then each file with a chunk and its end, or its end alone"


def test_a_folder_without_files_is_no_checkpoint(tmp_path: Path) -> None:
    store = open_store((tmp_path / "store").as_uri())
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ArtifactCorrupt, match="no files"):
        put_checkpoint(store, tmp_path / "nothing", "uid-1", 7)
    assert keys(store) == set()
