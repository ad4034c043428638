"""Our wheel as a package of a Ray cluster: nodes then need third-party packages only.

A wheel is a zip file with importable packages. Ray unpacks a package into a folder of each node that needs it and puts
that first on PYTHONPATH; pip is not used. Ray deletes a package that no job needs.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Self
from zipfile import BadZipFile, ZipFile

import mvprune

_NAME = re.compile(r"mvprune-([^-]+)(-[^-]+){3,4}\.whl")
_MOST_BYTES = 500 << 20  # of a package of Ray


class BadWheel(ValueError):
    """The file cannot be sent to nodes; the text says why."""


@dataclass(frozen=True)
class RayWheel:
    """A package, named after its content: the same wheel is sent once."""

    name: str
    content: bytes = field(repr=False)

    @property
    def path(self) -> str:
        """Where Ray's HTTP interface has it."""
        return f"/api/packages/gcs/{self.name}"

    @property
    def uri(self) -> str:
        """As a runtime environment names it."""
        return f"gcs://{self.name}"

    @classmethod
    def read(cls, file: Path) -> Self:
        """The wheel in a file. Raises BadWheel unless it is this server's version of mvprune."""
        wanted, named = mvprune.__version__, _NAME.fullmatch(file.name)
        if named is None or named[1] != wanted:
            raise BadWheel(f"must be the wheel of the server's version, mvprune-{wanted}-….whl, got {file}")
        try:
            content = file.read_bytes()
            with ZipFile(BytesIO(content)) as archive:
                is_whole = archive.testzip() is None
        except OSError as error:
            raise BadWheel(f"must name a readable file, got {file} ({error.strerror})") from None
        except BadZipFile:
            is_whole = False
        if not is_whole:
            raise BadWheel(f"must be a whole wheel, got {file}, which is damaged; build or download it again")
        if len(content) > _MOST_BYTES:
            raise BadWheel(f"must have at most {_MOST_BYTES} bytes, got {len(content)}")
        return cls(f"_ray_pkg_{hashlib.sha1(content, usedforsecurity=False).hexdigest()}.zip", content)
