"""What a lost worker wrote and could not send."""

from __future__ import annotations

_KEY_BYTES = 512  # of the log's end, by which it is found in the output
_HEADING = b"\n--- what the worker wrote last, read from the executor\n"


def unsent(stored: bytes, output: bytes) -> bytes:
    """What to append to an attempt's log.

    Args:
        stored: the end of the log.
        output: the end of what the worker's process wrote: the log, and lines of the executor.
    """
    key = stored[-_KEY_BYTES:]
    found = output.rfind(key) if key else -1
    if found >= 0:
        return output[found + len(key) :]
    return _HEADING + output if output.strip() else b""
