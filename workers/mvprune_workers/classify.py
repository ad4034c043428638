"""Why work ended that did not say so itself."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from mvprune.v1 import job_pb2

_CGROUPS = Path("/sys/fs/cgroup")
_FULL = (errno.ENOSPC, errno.EDQUOT)


def oom_kills(own: Path = Path("/proc/self/cgroup"), cgroups: Path = _CGROUPS) -> int | None:
    """Processes that the kernel has killed for memory in this process's cgroup, or, outside of any, on this machine;
    None where the kernel does not tell. Only its growth means something."""
    for source in (*_counters(own, cgroups), Path("/proc/vmstat")):
        try:
            fields = dict(line.split()[:2] for line in source.read_text().splitlines() if " " in line)
            return int(fields["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return None


def classify(returncode: int, oom_before: int | None, oom_after: int | None, last_line: str) -> job_pb2.Failure:
    """The failure behind a return code (as of subprocess: negative for a signal) that no failure event explains."""
    hint = f"; its last log line: {last_line}" if last_line else ""
    if returncode == -signal.SIGKILL and oom_before is not None and oom_after is not None and oom_after > oom_before:
        return job_pb2.Failure(
            reason=job_pb2.Failure.OUT_OF_MEMORY,
            message="The trainer was killed by the kernel because memory ran out; "
            "ask for more memory, or lower the batch size or the maximum length.",
        )
    if returncode == 0:
        what = "ended without a result"
    elif returncode > 0:
        what = f"exited with code {returncode}"
    else:
        what = f"was killed by {_signal_name(-returncode)}"
    return job_pb2.Failure(reason=job_pb2.Failure.TRAINER_CRASHED, message=f"The trainer {what}{hint}")


def disk_full(error: BaseException) -> str | None:
    """What to say of an error that comes of a disk without room, whatever it was taken for since; None for others."""
    words = [os.strerror(number) for number in _FULL]  # libraries in Rust and C++ keep nothing else
    for one in _causes(error):
        if getattr(one, "errno", None) in _FULL or any(text in str(one) for text in words):
            return f"The worker's disk is full (MVPRUNE_SCRATCH, MVPRUNE_CACHE): {one}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _counters(own: Path, cgroups: Path) -> list[Path]:
    try:
        entries = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    found = []
    for _, controllers, group in (entry for entry in entries if len(entry) == 3):
        if controllers == "":  # version 2
            found += [cgroups / group.lstrip("/") / "memory.events", cgroups / "memory.events"]
        elif "memory" in controllers.split(","):  # version 1; in a container the path is the host's, the mount is ours
            base = cgroups / "memory"
            found += [base / group.lstrip("/") / "memory.oom_control", base / "memory.oom_control"]
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
