"""Links and other things that lie in the folder of a local store where an object or a folder is expected."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, ObjectNotFound, StoreDamaged, StoreUnavailable
from mvprune_workers.transfer import transfer

from .conftest import keys_in

SECRET = b"a secret of the server's"
SHA256 = hashlib.sha256(SECRET).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> BlobStore:
    return open_store(root.as_uri())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that is none of the store's."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def pipe(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def folder(path: Path, target: Path) -> None:
    path.mkdir(parents=True)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", [link, pipe, folder])
def test_what_is_no_file_is_no_object(
    store: BlobStore, root: Path, outside: Path, what: Callable[[Path, Path], None]
) -> None:
    store.put("blobs/ab/honest", b"1")
    what(root / "blobs/ab/key", outside / "secret")
    assert store.size("blobs/ab/key") is None
    for read in (lambda: store.get("blobs/ab/key"), lambda: store.read("blobs/ab/key", 0, 5)):
        with pytest.raises(ObjectNotFound):
            read()
    assert keys_in(store, "") == keys_in(store, "blobs/ab/") == ["blobs/ab/honest"]


@pytest.mark.parametrize("target", ["secret", "nothing"])
def test_a_link_at_a_key_is_replaced_and_what_it_leads_to_stays(
    store: BlobStore, root: Path, outside: Path, target: str
) -> None:
    link(root / "blobs/key", outside / target)
    store.put_file("blobs/key", outside / "secret", SHA256)  # of the same content, which is not there for that
    assert not (root / "blobs/key").is_symlink()
    assert store.get("blobs/key") == SECRET

    link(root / "blobs/other", outside / target)
    store.put("blobs/other", b"new")
    assert store.get("blobs/other") == b"new"
    link(root / "blobs/third", outside / target)
    assert not store.put("blobs/third", b"new", if_absent=True), "something lies there"
    store.delete("blobs/third")
    assert not (root / "blobs/third").is_symlink()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"secret": SECRET}


@pytest.mark.parametrize("if_absent", [False, True])
@pytest.mark.parametrize("in_the_way", ["blobs/key", "blobs"])
def test_what_lies_where_an_object_belongs_is_named_and_not_waited_for(
    store: BlobStore, root: Path, outside: Path, in_the_way: str, if_absent: bool
) -> None:
    if in_the_way == "blobs":
        (root / "blobs").write_bytes(b"a file where a folder belongs")
    else:
        (root / "blobs/key/made by hand").mkdir(parents=True)
    tries: list[str] = []

    def work(store: BlobStore) -> None:
        tries.append("one")
        store.put("blobs/key", b"1", if_absent=if_absent)

    words = rf"must have an object at blobs/key, got something else .*: {in_the_way.rpartition('/')[2]}\); move it away"
    with pytest.raises(StoreDamaged, match=words):
        transfer(root.as_uri(), work, print, 60, threading.Event())
    assert tries == ["one"]
    with pytest.raises(StoreDamaged, match=words):
        store.put_file("blobs/key", outside / "secret", SHA256)
    assert store.size("blobs/key") is None


@pytest.mark.parametrize("at", ["blobs", "blobs/sha256"])
def test_a_folder_that_is_a_link_is_not_entered(store: BlobStore, root: Path, outside: Path, at: str) -> None:
    (outside / "sha256").mkdir()
    (outside / "sha256" / "secret").write_bytes(SECRET)
    link(root / at, outside if at == "blobs" else outside / "sha256")
    key = "blobs/sha256/secret"
    assert store.size(key) is None
    with pytest.raises(ObjectNotFound):
        store.get(key)
    assert keys_in(store, "") == keys_in(store, "blobs/") == keys_in(store, "blobs/sha256/s") == []
    store.delete(key)
    calls: list[Callable[[], object]] = [
        lambda: store.put(key, b"1"),
        lambda: store.put(key, b"1", if_absent=True),
        lambda: store.put_file(key, outside / "secret", SHA256),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match=f"Not a directory: {at.rpartition('/')[2]}"):
            call()
    assert sorted(path.name for path in (outside / "sha256").iterdir()) == ["secret"]
    assert (outside / "sha256" / "secret").read_bytes() == SECRET


def test_a_staging_folder_that_is_a_link_is_none(store: BlobStore, root: Path, outside: Path) -> None:
    (root / ".staging").rmdir()
    link(root / ".staging", outside)
    os.utime(outside / "secret", (0, 0))
    calls: list[Callable[[], object]] = [
        lambda: store.put("key", b"1"),
        lambda: store.put_file("key", outside / "secret", SHA256),
        lambda: store.remove_torn(system_clock() + 60 * SECOND),
        lambda: store.get("key"),
        lambda: list(store.list("")),
        lambda: open_store(root.as_uri()),
        lambda: open_store(root.as_uri(), create=False),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call()
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_link_in_the_staging_folder_is_removed_and_not_what_it_leads_to(
    store: BlobStore, root: Path, outside: Path
) -> None:
    link(root / ".staging" / "left", outside / "secret")
    store.remove_torn(system_clock() + 60 * SECOND)
    assert list((root / ".staging").iterdir()) == []
    assert (outside / "secret").read_bytes() == SECRET


def test_the_root_may_be_a_link(store: BlobStore, root: Path, tmp_path: Path) -> None:
    """It is the operator who names it."""
    store.put("a/b", b"1")
    (tmp_path / "name").symlink_to(root)
    again = open_store((tmp_path / "name").as_uri())
    again.put("a/c", b"2")
    assert [again.get("a/b"), store.get("a/c")] == [b"1", b"2"]


def test_files_that_are_no_objects_are_left_out_of_a_listing(store: BlobStore, root: Path) -> None:
    store.put("a/b", b"1")
    for name in ("lost+found", ".hidden", "a/two words", "a/.hidden"):
        (root / name).write_bytes(b"")
    assert keys_in(store, "") == ["a/b"]
