"""The files that are sent of a model's folder or a data file of this machine."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass

from mvprune.client.inputs import Local
from mvprune.client.sink import Chunk
from mvprune.sources.references import InvalidReference
from mvprune.sources.uploads import File, Kind, Reference, describe, digest, is_name, not_sent, paths_of

Signature = tuple[tuple[str, int, int, int, int, int], ...]
"""Of each file: its name, and what changes when somebody writes to it."""


@dataclass(frozen=True)
class Content:
    """The files that are sent, with the hashes of their chunks."""

    local: Local
    files: tuple[File, ...]
    not_sent: tuple[str, ...]

    @functools.cached_property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def display_name(self) -> str:
        """The name of the folder or the file."""
        if self.local.kind is Kind.DATA:
            return self.files[0].path
        name = self.local.path.resolve().name  # "." has none of its own
        return name if is_name(name) else str(Kind.MODEL)

    @functools.cached_property
    def reference(self) -> str:
        """The reference by which a job names it."""
        return str(Reference(digest(self.files), self.display_name))

    def chunks(self, missing: Collection[str]) -> list[Chunk]:
        """Where the missing chunks are; one that is in several places only once."""
        wanted = set(missing)
        found: dict[str, Chunk] = {}
        for file in self.files:
            path = self.local.path if self.local.kind is Kind.DATA else self.local.path / file.path
            offset = 0
            for sha256, size in zip(file.chunks, file.sizes(), strict=True):
                if sha256 in wanted:
                    found.setdefault(sha256, Chunk(sha256, str(path), offset, size, file.size_bytes))
                offset += size
        return list(found.values())


class Contents:
    """Contents of this machine, read once as long as nothing writes to them."""

    def __init__(self) -> None:
        self._known: dict[Local, tuple[Signature, Content]] = {}

    def read(self, one: Local, report: Callable[[int, int], None]) -> Content:
        """Checks a model's folder or a data file, and reads it.

        Args:
            report: called with the bytes that were read, and those that will be.

        Raises:
            InvalidReference: it must not be sent, or not be used; the text names the local path.
        """
        try:
            if not one.path.exists():
                what = "a folder" if one.kind is Kind.MODEL else "a file"
                remedy = f"server:{one.path} is {what} of the server"
                raise InvalidReference(f"must be {what} of this machine, got {str(one.path)!r}, not found; {remedy}")
            signature = _signature(one)
            if one in self._known and self._known[one][0] == signature:
                return self._known[one][1]
            if one.kind is Kind.MODEL:
                # few need it
                from mvprune.artifact.masks import inspect_mask
                from mvprune.sources.model_folder import inspect_model

                (inspect_mask if one.is_mask else inspect_model)(one.path)
            content = _read(one, sum(size for _, size, *_ in signature), report)
            if _signature(one) != signature:
                raise InvalidReference(
                    f"{str(one.path)!r} was changed while it was read; submit again once nothing writes to it"
                )
        except OSError as error:
            raise InvalidReference(f"{str(one.path)!r} cannot be read ({error.strerror})") from None
        self._known[one] = signature, content
        return content


def _read(one: Local, total: int, report: Callable[[int, int], None]) -> Content:
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        report(done, total)

    report(0, total)
    files = describe(one.kind, one.path, add)
    return Content(one, tuple(files), tuple(not_sent(one.path)) if one.kind is Kind.MODEL else ())


def _signature(one: Local) -> Signature:
    found = []
    for path in paths_of(one.kind, one.path):
        stat: os.stat_result = path.lstat()
        found.append((path.name, stat.st_size, stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns))
    return tuple(found)
