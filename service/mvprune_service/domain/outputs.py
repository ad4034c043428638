"""Output of a worker that it could not send."""

from __future__ import annotations

_LONGEST_LINE = 400
_SUPERVISOR = " supervisor: "  # begins what a worker's supervisor says, after the time; the rest is its trainer's
_KEY_BYTES = 512  # of the log's end, by which it is found in the output
_HEADING = b"\n--- what the worker wrote last, read from the executor\n"


def unsent(stored: bytes, output: bytes) -> bytes:
    """The text to append to an attempt's log.

    Args:
        stored: the end of the log.
        output: the end of what the worker's process wrote: the log, and lines of the executor.
    """
    key = stored[-_KEY_BYTES:]
    found = output.rfind(key) if key else -1
    if found >= 0:
        return output[found + len(key) :]
    return _HEADING + output if output.strip() else b""


def last_line(output: bytes) -> str:
    """The last line of a supervisor in what its process wrote, else the last line of all; "" if there is none."""
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    said = [line.partition(_SUPERVISOR)[2] for line in lines if _SUPERVISOR in line]
    return (said or lines or [""])[-1][:_LONGEST_LINE]
