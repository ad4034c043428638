"""What the client returns about uploads: frozen mirrors of the messages in proto/mvprune/v1/upload.proto, and the
progress of one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from mvprune.sources.uploads import Reference


class UploadState(StrEnum):
    """Whether jobs can use an upload. A state that this version does not know reads as UNSPECIFIED."""

    UNSPECIFIED = "UNSPECIFIED"
    INCOMPLETE = "INCOMPLETE"
    READY = "READY"


@dataclass(frozen=True)
class UploadFile:
    """A file of an upload."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class Upload:
    """A model's folder or a data file that a client sent.

    Attributes:
        kind: "model" or "data".
        display_name: the name of the folder or file on the client's machine.
        files: empty in lists.
        jobs: how many jobs and sweeps use it.
        expire_time: when it is deleted if no job uses it until then; None while one does.
    """

    name: str
    kind: str
    display_name: str
    files: tuple[UploadFile, ...]
    state: UploadState
    total_bytes: int
    jobs: int
    creator: str
    create_time: datetime | None
    expire_time: datetime | None

    COMPUTED = ("digest", "reference")  # properties that JSON output has beside the fields

    @property
    def digest(self) -> str:
        """SHA-256 of the names, sizes and contents of its files: 64 hexadecimal digits."""
        return self.name.rpartition("/")[2]

    @property
    def reference(self) -> str:
        """The reference by which jobs of the project name it: upload:DIGEST/NAME."""
        return str(Reference(self.digest, self.display_name))


@dataclass(frozen=True)
class UploadProgress:
    """A model's folder or a data file while it is read and sent.

    Attributes:
        parameters: which parameters of the job or sweep name it; empty for `Client.upload`.
        path: where it is on this machine.
        kind: "model" or "data".
        stage: "reading", "checked" (the server accepts the job; with `validate_only` nothing follows) or "sending".
        total_bytes: of all its files.
        read_bytes: how many of them were read for the digest.
        stored_bytes: how many of them the server had already.
        sent_bytes: how many were sent.
        reference: upload:DIGEST/NAME; "" while it is read.
        files: those that are sent; empty while it is read.
        not_sent: names in the folder that are left out, subfolders with a "/" at the end.
    """

    parameters: tuple[str, ...]
    path: Path
    kind: str
    stage: Literal["reading", "checked", "sending"]
    total_bytes: int
    read_bytes: int = 0
    stored_bytes: int = 0
    sent_bytes: int = 0
    reference: str = ""
    files: tuple[UploadFile, ...] = ()
    not_sent: tuple[str, ...] = ()
