"""The trainer's position in a small file, which remains when a signal kills the trainer between two events."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BYTES = 80  # a write of so few bytes is atomic


class Position:
    """Written by the trainer: one write per step, without waiting."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def set(self, phase: str, step: int) -> None:
        """Records a completed step of a phase. Errors are ignored, such as a full disk."""
        with suppress(OSError):
            os.pwrite(self._fd, f"{step} {phase}".encode()[:_BYTES].ljust(_BYTES), 0)


def read_position(path: Path) -> tuple[str, int]:
    """The phase and its last completed step; "" and 0 before the first phase."""
    try:
        step, phase = path.read_bytes().decode().split(maxsplit=1)
        return phase.strip(), int(step)
    except (OSError, ValueError):
        return "", 0
