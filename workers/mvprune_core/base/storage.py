"""Files of tensors on this machine: a cache of results, and checkpoints.

Both are safetensors files, written under a temporary name and renamed, so that a reader sees a complete file or none.
Temporary files of a killed process are removed after a day, by a process that writes to the same folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mvprune_core.base.group import ALONE, Group

_FACTS, _CHECKSUM = "mvprune", "crc32"
_FORMAT = 4  # of checkpoints; those of another format are not used
_ABANDONED_SECONDS = 24 * 3600.0  # machines may share the folder, so only the age of a file shows that it is abandoned

_Content = tuple[dict[str, Tensor], dict[str, Any]]


def identity(*parts: Any) -> str:
    """SHA-256 of JSON values. Equal parts have equal identities."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Cache:
    """Results by the identity of their inputs. Processes may share it, and its files may be deleted at any time.

    In a group, rank 0 reads and writes, and all ranks compute what is not there.

    Args:
        folder: where the files are; None: nothing is cached.
        group: the ranks, all of which ask for the same.
    """

    def __init__(self, folder: Path | None, group: Group = ALONE) -> None:
        self._folder = folder
        self._group = group

    def tensors(self, kind: str, key: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The result of `compute`, or its earlier result for the same `kind` and `key`.

        A damaged file is computed again. If the folder cannot be written to, nothing is cached.
        """
        return self._get(kind, key, lambda: (compute(), {}))[0]

    def facts(self, kind: str, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The same for JSON values."""
        return self._get(kind, key, lambda: ({}, compute()))[1]

    def _get(self, kind: str, key: str, compute: Callable[[], _Content]) -> _Content:
        if self._folder is None:
            return compute()
        path = self._folder / kind / f"{key}.safetensors"
        found = _shared(self._group, lambda: _read(path))
        if found is not None:
            if self._group.rank == 0:
                with suppress(OSError):  # another user's file
                    os.utime(path)  # the least recently used files are deleted first
            return found
        tensors, facts = compute()
        if self._group.rank == 0:
            with suppress(OSError):
                _write(path, tensors, facts)
        return tensors, facts


class Checkpoints:
    """The checkpoints of a run, one for each phase of training. As a context manager, it waits for `save_beside`.

    Args:
        folder: where they are; created if missing.
        run: identity of the run; checkpoints of another run are not used.
        seconds: seconds between two checkpoints of a phase.
        group: the ranks; rank 0 reads and writes for all of them.
    """

    def __init__(self, folder: Path, run: str, seconds: float, group: Group = ALONE) -> None:
        self._folder = folder
        self._group = group
        self._run = identity(run, _FORMAT)
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._saving: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()

    @property
    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() >= self._next

    def save(self, phase: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replaces the checkpoint of `phase`. Raises OSError if it cannot be written; the last one stays."""
        self._wait()
        self._save(phase, tensors, facts)

    def save_beside(
        self,
        phase: str,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        saved: Callable[[OSError | None], None],
    ) -> None:
        """The same in a thread, which then calls `saved` with the error, if there is one.

        The tensors must stay as they are until the next use of the checkpoints, which waits for the thread.
        """

        def save() -> None:
            error = None
            try:
                self._save(phase, tensors, facts)
            except OSError as raised:
                error = raised
            saved(error)

        self._wait()
        pool = ThreadPoolExecutor(1, "checkpoint")
        self._saving = pool.submit(save)
        pool.shutdown(wait=False)

    def load(self, phase: str) -> _Content | None:
        """The newest checkpoint of `phase`: its tensors and facts; None if this run has none.

        Warns if the checkpoint is damaged or of another run. The next `save` replaces it.
        """
        self._wait()
        return _shared(self._group, lambda: self._load(phase))

    def _wait(self) -> None:
        """Waits for `save_beside`; raises what `saved` raised."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def _save(self, phase: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        try:
            if self._group.rank == 0:
                _write(self._path(phase), tensors, {"run": self._run, **facts})
        finally:
            self._next = time.monotonic() + self._seconds

    def _load(self, phase: str) -> _Content | None:
        path = self._path(phase)
        found = _read(path)
        if found is not None and found[1].get("run") == self._run:
            return found
        if found is not None:
            wrong = "is of another run (other settings, data, versions or number of threads)"
        elif os.path.exists(path):  # noqa: PTH110 (Path's own raises where the folder may not be read)
            wrong = "is damaged or cannot be read"
        else:
            return None
        warnings.warn(f"{path} {wrong}: this one starts anew", RuntimeWarning, stacklevel=2)
        return None

    def _path(self, phase: str) -> Path:
        return self._folder / f"{phase}.safetensors"


def _shared(group: Group, read: Callable[[], _Content | None]) -> _Content | None:
    """The content that rank 0 reads."""
    found = read() if group.rank == 0 else None
    facts = group.broadcast(None if found is None else found[1])
    if facts is None:
        return None
    return dict(group.broadcast_tensors({} if found is None else found[0])), facts


def _write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path.parent)
    aside = path.with_name(f".{path.name}.{uuid4().hex}")  # process numbers are not unique across containers
    whole, text = {name: tensor.contiguous() for name, tensor in tensors.items()}, json.dumps(facts)
    try:
        save_file(whole, aside, {_FACTS: text, _CHECKSUM: _checksum(whole, text)})
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    except SafetensorError as error:  # such as a full disk
        raise OSError(f"{path}: {error}") from error
    finally:
        aside.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    for aside in folder.glob(".*.safetensors.*"):
        with suppress(OSError):  # another process was faster
            if time.time() - aside.stat().st_mtime > _ABANDONED_SECONDS:
                aside.unlink()


def _read(path: Path) -> _Content | None:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        intact = metadata[_CHECKSUM] == _checksum(tensors, metadata[_FACTS])
        return (tensors, json.loads(metadata[_FACTS])) if intact else None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _checksum(tensors: Mapping[str, Tensor], facts: str) -> str:
    """CRC-32 of the content of a file. safetensors itself does not detect flipped bits."""
    checksum = zlib.crc32(facts.encode())
    for name in sorted(tensors):
        content = tensors[name].cpu().reshape(-1).view(torch.uint8).numpy()
        checksum = zlib.crc32(content.data, zlib.crc32(name.encode(), checksum))
    return f"{checksum:08x}"
