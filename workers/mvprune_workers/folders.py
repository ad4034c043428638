"""Where the files of one attempt lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folders:
    """The folders that supervisor and trainer share.

    Attributes:
        output: the artifact, written when all is done.
        teacher: the artifact of the teacher's job, or only the manifest of the baseline's job, if the job has one.
        inputs: what the job names in buckets.
        checkpoint: what the work can be resumed from.
        cache: what jobs on this machine share.
    """

    output: Path
    teacher: Path
    inputs: Path
    checkpoint: Path
    cache: Path

    @property
    def position(self) -> Path:
        """A file of the attempt's: see position.py."""
        return self.output.with_name("position")
