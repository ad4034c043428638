"""Where the trainer's work is: a small file that stays when a signal kills the trainer between two events."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BYTES = 80  # one write of so few bytes is there as a whole or not at all


class Position:
    """The trainer's end: one write a step, which waits for nobody."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def set(self, phase: str, step: int) -> None:
        """The step of the phase is done. A disk without room for it is no reason to stop."""
        with suppress(OSError):
            os.pwrite(self._fd, f"{step} {phase}".encode()[:_BYTES].ljust(_BYTES), 0)


def read_position(path: Path) -> tuple[str, int]:
    """The phase, and the last of its steps that was done; "" and 0 before the first phase."""
    try:
        step, phase = path.read_bytes().decode().split(maxsplit=1)
        return phase.strip(), int(step)
    except (OSError, ValueError):
        return "", 0
