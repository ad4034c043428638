"""Memory that one training step frees and the next one needs again."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, see malloc.h
_NEVER = -1
_LARGEST = 32 << 20  # bytes of an allocation on the heap; glibc raises its own threshold to this at most
_USUAL_TRIM = 2 * _LARGEST  # glibc's own choice then
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
_TUNABLES = ("glibc.malloc.trim_threshold", "glibc.malloc.mmap_threshold")


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """A context in which the process keeps freed memory for its next allocations, and which returns it at the end.

    By default, glibc returns the free end of its heap to the system after each step, and the system clears each page
    that the next step touches. With short batches, that is a fifth of a step. Afterwards, glibc has the thresholds that
    it would reach by itself. Other allocators keep their behaviour, and so does glibc where the environment sets its
    thresholds.
    """
    libc = _glibc()
    if libc is None or _is_set_by_user():
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, _LARGEST)
    libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
        libc.malloc_trim(ctypes.c_size_t(0))


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None  # musl has neither


def _is_set_by_user() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return any(name in os.environ for name in _VARIABLES) or any(name in tunables for name in _TUNABLES)
