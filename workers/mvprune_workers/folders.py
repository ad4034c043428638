"""The folders of one attempt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folders:
    """The folders that supervisor and trainer share.

    Attributes:
        output: the artifact, written at the end.
        teacher: the artifact of the teacher's job, or only the manifest and the history of the
            baseline's job, if the job has one.
        beginning: the artifact of another job that the job begins with: its mask, or the model to go on from.
        inputs: the inputs that the supervisor fetched from buckets, and those that clients sent.
        checkpoint: the checkpoints that the work can be resumed from.
        cache: the cache that jobs on this machine share.
    """

    output: Path
    teacher: Path
    beginning: Path
    inputs: Path
    checkpoint: Path
    cache: Path

    @property
    def fetched(self) -> dict[str, Path]:
        """Those that all ranks read, by name. Rank 0 reads the rest for them."""
        return {"teacher": self.teacher, "beginning": self.beginning, "inputs": self.inputs}

    @property
    def position(self) -> Path:
        """The file with the attempt's position, see position.py."""
        return self.output.with_name("position")

    @property
    def meeting(self) -> Path:
        """The file through which the ranks of the attempt connect."""
        return self.output.with_name("meeting")

    @property
    def address(self) -> Path:
        """The file with HOST:PORT of rank 0, through which ranks on several nodes connect."""
        return self.output.with_name("address")
