"""Every call to the operating system that a local store makes while something is published fails once, in every way
that it can: nothing that is half written is ever visible, and the next try succeeds."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.tiers import first_fast

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.stores import local, open_store, tree
from mvprune_service.stores.base import BlobStore, StoreFull, StoreUnavailable
from mvprune_service.stores.checkpoints import checkpoint_prefix, fetch_checkpoint, put_checkpoint
from mvprune_service.stores.layout import publish, read_marker, verify

from .conftest import keys_in

CALLS = ("open to read", "open", "write", "fsync", "close", "link", "replace", "mkdir", "unlink", "fstat")
MAKES_ROOM = ("open", "write", "fsync", "link", "replace", "mkdir")  # may find no room


class Crash(BaseException):
    """The process is dead: it cleans nothing up."""


class Faulty:
    """`os`, whose call with this number does what `fault` says. fsync does nothing: there is no power cut here."""

    def __init__(self, number: int = -1, fault: Callable[..., Any] | None = None, names: Sequence[str] = ()) -> None:
        self.made: list[str] = []
        self._number, self._fault, self._names = number, fault, names
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._dead and name != "close":
                raise Crash
            act = (lambda *_: None) if name == "fsync" else real
            self.made.append("open to read" if name == "open" and not args[1] & os.O_CREAT else name)
            if len(self.made) - 1 != self._number or self._fault is None or self.made[-1] not in self._names:
                return act(*args, **kwargs)
            try:
                return self._fault(name, lambda: act(*args, **kwargs), *args)
            except Crash:
                self._dead = True
                raise

        return call


def undone(name: str, act: Callable[[], Any]) -> None:
    """Has the effect of a call, whose answer gets lost."""
    answer = act()
    if name == "open":
        os.close(answer)


def fails(code: int, *, after: bool = False) -> Callable[..., Any]:
    def fault(name: str, act: Callable[[], Any], *_: Any) -> Any:
        if after:
            undone(name, act)
        raise OSError(code, os.strerror(code))

    return fault


def crashes(after: bool) -> Callable[..., Any]:
    def fault(name: str, act: Callable[[], Any], *_: Any) -> Any:
        if after:
            with contextlib.suppress(OSError):  # such as a folder that is there
                undone(name, act)
        raise Crash

    return fault


def writes_half(code: int | None) -> Callable[..., Any]:
    """As a disk does that becomes full, or, without a code, a system call that a signal cuts short."""

    def fault(name: str, act: Callable[[], Any], *args: Any) -> Any:
        descriptor, data = args
        written = os.write(descriptor, bytes(data)[: len(data) // 2])
        if code is not None:
            raise OSError(code, os.strerror(code))
        return written

    return fault


FAULTS = {
    "EIO": (CALLS, fails(errno.EIO)),
    "EIO after it was done": (CALLS, fails(errno.EIO, after=True)),
    "ENOSPC": (MAKES_ROOM, fails(errno.ENOSPC)),
    "EDQUOT": (MAKES_ROOM, fails(errno.EDQUOT)),
    "a short write": (("write",), writes_half(None)),
    "a torn write": (("write",), writes_half(errno.ENOSPC)),
    "a crash before": (CALLS, crashes(after=False)),
    "a crash after": (CALLS, crashes(after=True)),
    "a torn write and a crash": (("write",), lambda name, act, *args: crash_halfway(*args)),
}
FAST = ("EIO", "ENOSPC", "a torn write", "a crash after")


def crash_halfway(*args: Any) -> None:
    writes_half(None)("write", lambda: None, *args)
    raise Crash


class Published:
    """An artifact, published under an attempt's name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        data = b"weights" * 1000
        (folder / "weights").write_bytes(data)
        entry = {"path": "weights", "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / "manifest.json").write_text(json.dumps({"files": [entry]}))

    def put(self, store: BlobStore) -> str:
        return publish(store, self._folder, "uid")

    def check(self, store: BlobStore, returned: str | None) -> None:
        """What is visible is whole; all of it is there where the call returned."""
        for key in keys_in(store, ""):
            name = key.rpartition("/")[2]
            assert name == "RESULT.json" or hashlib.sha256(store.get(key)).hexdigest() == name
        committed = read_marker(store, "uid")
        assert returned in (None, committed)
        if committed is not None:
            verify(store, committed)


class Checkpoint:
    """A checkpoint of an attempt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "source"
        self._folder.mkdir(parents=True)
        (self._folder / "state").write_bytes(b"state" * 1000)
        self._fetched = (folder / f"fetched-{number}" for number in itertools.count())

    def put(self, store: BlobStore) -> str:
        return put_checkpoint(store, self._folder, "uid", 7)

    def check(self, store: BlobStore, returned: str | None) -> None:
        prefix = checkpoint_prefix("uid", 7)
        there = {key.removeprefix(prefix): store.get(key) for key in keys_in(store, "")}
        assert there.get("state", b"state" * 1000) == b"state" * 1000
        if "manifest.json" in there:
            sha256 = hashlib.sha256(there["manifest.json"]).hexdigest()
            fetch_checkpoint(store, "uid", 7, sha256, next(self._fetched))
        assert returned is None or returned == hashlib.sha256(there["manifest.json"]).hexdigest()


@pytest.fixture(params=[Published, Checkpoint])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Published | Checkpoint:
    made: Published | Checkpoint = request.param(tmp_path / "subject")
    return made


def injected(monkeypatch: pytest.MonkeyPatch, faulty: Faulty, work: Callable[[], str]) -> str | BaseException:
    with monkeypatch.context() as patch:
        patch.setattr(tree, "os", faulty)
        patch.setattr(local, "os", faulty)
        try:
            return work()
        except (StoreUnavailable, Crash) as error:
            return error


def stores(folder: Path, name: str) -> Iterator[BlobStore]:
    """New ones."""
    for number in itertools.count():
        yield open_store((folder / f"{name} {number}").as_uri())


@pytest.mark.parametrize(
    ("fault", "already"),
    first_fast(
        [
            *((fault, False) for fault in sorted(FAULTS, key=lambda fault: fault not in FAST)),
            *((fault, True) for fault in ("EIO", "ENOSPC", "a crash after")),
        ],
        len(FAST),
    ),
)
def test_a_fault_of_any_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subject: Published | Checkpoint,
    fault: str,
    already: bool,
) -> None:
    names, act = FAULTS[fault]
    number, hits = 0, 0
    for store in stores(tmp_path, "store"):
        if already:
            assert isinstance(injected(monkeypatch, Faulty(), lambda store=store: subject.put(store)), str)
        staging = Path(store.url.removeprefix("file://").replace("%20", " ")) / ".staging"
        faulty = Faulty(number, act, names)
        ended = injected(monkeypatch, faulty, lambda store=store, faulty=faulty: subject.put(store))
        if len(faulty.made) <= number:
            break
        called = faulty.made[number]
        number += 1
        if called not in names:
            continue
        hits += 1
        told = f"{fault} of {called}, call {number}: {ended!r}"
        if "short" in fault:
            assert isinstance(ended, str), told
        elif "crash" in fault:
            assert isinstance(ended, Crash), told
        elif not isinstance(ended, str):  # some faults do not matter, such as one of tidying up
            assert isinstance(ended, StoreFull) == ("EIO" not in fault), told
            assert "EIO" in fault or "no room left" in str(ended), told
        subject.check(store, ended if isinstance(ended, str) else None)
        left = list(staging.iterdir())
        assert len(left) <= ("crash" in fault or called == "unlink"), told
        store.remove_torn(system_clock() + 60 * SECOND)
        assert list(staging.iterdir()) == [], told
        again = injected(monkeypatch, Faulty(), lambda store=store: subject.put(store))
        assert isinstance(again, str), told
        subject.check(store, again)
    assert number > 20
    assert hits > 0 or already
