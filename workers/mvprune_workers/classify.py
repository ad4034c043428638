"""Why work ended that did not say so itself."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mvprune.v1 import job_pb2, worker_pb2

_CGROUPS = Path("/sys/fs/cgroup")
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Signals that a process causes itself by wrong code. SIGBUS is not one of them: a mapped file has lost its disk or its
# space (/dev/shm).
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)


def oom_kills(own: Path = Path("/proc/self/cgroup"), cgroups: Path = _CGROUPS) -> int | None:
    """Processes that the kernel has killed for memory in this process's cgroup, or, outside of any, on this machine;
    None if the kernel does not report it. Only the increase is meaningful."""
    for source in (*_counters(own, cgroups), Path("/proc/vmstat")):
        try:
            fields = dict(line.split()[:2] for line in source.read_text().splitlines() if " " in line)
            return int(fields["oom_kill"])
        except (OSError, KeyError, ValueError):
            continue
    return None


@dataclass(frozen=True)
class End:
    """The failure of a trainer that did not report one and, if a signal from outside killed it, the signal."""

    failure: job_pb2.Failure
    killed: worker_pb2.CompleteAttemptRequest.Killed | None = None


def classify(
    returncode: int, oom_before: int | None, oom_after: int | None, last_line: str, position: tuple[str, int]
) -> End:
    """The failure that a return code means, for a trainer that reported none and was not stopped by the supervisor.

    `returncode` is negative for a signal, as in subprocess. `position` is the phase and its last completed step.
    """
    hint = f"; its last log line: {last_line}" if last_line else ""
    if returncode >= 0:
        what = f"exited with code {returncode}" if returncode else "ended without a result"
        return _crashed(f"The trainer {what}{hint}")
    number = -returncode
    name = _signal_name(number)
    if number in _CRASHES:
        return _crashed(f"The trainer crashed: {name}{hint}")
    phase, step = position
    where = f"after step {step} of {phase}" if phase else "before the work began"
    killed = worker_pb2.CompleteAttemptRequest.Killed(signal=number, phase=phase, step=step)
    if number == signal.SIGKILL and oom_before is not None and oom_after is not None and oom_after > oom_before:
        message = (
            f"The trainer was killed by the kernel {where} because memory ran out; "
            "ask for more memory, or lower the batch size or the maximum length."
        )
        return End(job_pb2.Failure(reason=job_pb2.Failure.OUT_OF_MEMORY, message=message), killed)
    message = f"The trainer was killed by {name} {where}. The service did not send the signal."
    return End(job_pb2.Failure(reason=job_pb2.Failure.TRAINER_KILLED, message=message), killed)


def _crashed(message: str) -> End:
    return End(job_pb2.Failure(reason=job_pb2.Failure.TRAINER_CRASHED, message=message))


def disk_full(error: BaseException) -> str | None:
    """The message for an error that was caused by a full disk, directly or through others; None for other errors."""
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
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
