"""One file of an artifact while it is fetched, in parts.

The first part is the beginning of the file itself. Each later one is collected in a file of its own, so that several
can be fetched at once, and is appended when it is next. The sizes of these files are all that a later run needs to go
on where this one was killed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass

from mvprune.client.folder import Folder, Place
from mvprune.client.models import ArtifactFile
from mvprune.common.exceptions import IntegrityError

PART_BYTES = 8 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Part:
    """Bytes `start` to `end` of a file, collected at `place`."""

    of: FileInParts
    place: Place
    start: int
    end: int

    @property
    def missing(self) -> int:
        """Bytes that are neither in the file nor collected for it."""
        if self.of.place.size >= self.end:
            return 0
        return self.end - self.start - self.place.size


class FileInParts:
    """A file that grows.

    Args:
        wanted: the file as the artifact lists it.
        place: where it grows.
        parts: the folder of its later parts.
        stem: their names, before their number.
        splits: whether there are later parts.

    Raises:
        DownloadError, OSError: see Place.open.
    """

    def __init__(self, wanted: ArtifactFile, place: Place, parts: Folder, stem: str, *, splits: bool) -> None:
        self.wanted = wanted
        self.place = place
        step = PART_BYTES if splits else max(1, wanted.size_bytes)
        self._parts = [
            Part(
                self,
                Place(parts, f"{stem}.{start}") if start else place,
                start,
                min(start + step, wanted.size_bytes),
            )
            for start in range(0, wanted.size_bytes, step)
        ]
        self._digest, self._hashed = hashlib.sha256(), 0
        place.open("ab").close()
        if place.size > wanted.size_bytes or any(part.missing < 0 for part in self._parts):
            self.clear()
        self.resumed = self.present > 0

    @property
    def present(self) -> int:
        """Bytes that are there already."""
        return self.wanted.size_bytes - sum(part.missing for part in self._parts)

    def missing_parts(self) -> list[Part]:
        """The parts that are not whole."""
        return [part for part in self._parts if part.missing]

    def clear(self) -> None:
        """Forgets what is there."""
        with self.place.open("r+b") as file:
            file.truncate(0)
        for part in self._parts[1:]:
            part.place.remove()
        self._digest, self._hashed, self.resumed = hashlib.sha256(), 0, False

    def advance(self) -> bool:
        """Appends and hashes the parts that are next and whole; True when that was the last, and all is verified.

        Raises:
            IntegrityError: all is there, and does not have the SHA-256 that is wanted.
        """
        with self.place.open("r+b") as file:
            for part in self._parts:
                if part.missing:
                    return False
                self._join(part)
                file.seek(self._hashed)
                while self._hashed < part.end:
                    block = file.read(min(_BLOCK, part.end - self._hashed))
                    self._digest.update(block)
                    self._hashed += len(block)
            os.fsync(file.fileno())
        if self._digest.hexdigest() != self.wanted.sha256:
            raise IntegrityError(f"{self.wanted.path}: the bytes received do not have the SHA-256 {self.wanted.sha256}")
        return True

    def _join(self, part: Part) -> None:
        """Appends what the file does not have of a whole part; a run that was killed may have appended some."""
        joined = self.place.size
        if joined < part.end:
            with part.place.open("rb") as source, self.place.open("ab") as sink:
                source.seek(joined - part.start)
                shutil.copyfileobj(source, sink, _BLOCK)
        if part.start:
            part.place.remove()
