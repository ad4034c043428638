"""Rows of the tables of uploads. See rows.py."""

from __future__ import annotations

from typing import Any, NamedTuple

from mvprune.sources.uploads import File, Kind
from mvprune_service.ids import UploadName


class UploadRow(NamedTuple):
    """A row of `uploads`."""

    project: str
    digest: str
    kind: Kind
    display_name: str
    files: list[dict[str, Any]]
    total_bytes: int
    creator: str
    create_us: int
    used_us: int
    ready_us: int | None
    parts: int

    @property
    def name(self) -> UploadName:
        """The upload's resource name."""
        return UploadName(self.project, self.digest)

    def described(self) -> list[File]:
        """Its files."""
        return [File(file["path"], file["size_bytes"], tuple(file["chunks"])) for file in self.files]


class ListedUploadRow(NamedTuple):
    """A row of `uploads` without its files, and the number of jobs and sweeps that use it."""

    project: str
    digest: str
    kind: Kind
    display_name: str
    total_bytes: int
    creator: str
    create_us: int
    used_us: int
    ready_us: int | None
    parts: int
    jobs: int

    @property
    def name(self) -> UploadName:
        """The upload's resource name."""
        return UploadName(self.project, self.digest)


class ChunkRow(NamedTuple):
    """A row of `upload_chunks`."""

    project: str
    sha256: str
    uid: str
    size_bytes: int
    is_ready: bool
    create_us: int


class UploadTotalRow(NamedTuple):
    """A row of `upload_totals`."""

    project: str
    stored_bytes: int
    parts: int
