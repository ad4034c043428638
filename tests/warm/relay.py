"""Stands for a trainer or a supervisor that is a fork of a warm process, or for a command of mvpctl that is one:
`python -I -S relay.py SOCKET PYTHON SHOWN -P -m MODULE …`, or `… -P SCRIPT …`.

It gives the fork its descriptors, environment and folder, passes signals on, and ends as the fork ends. The fork ends
with it. If there can be no fork, it becomes PYTHON, which then believes to be SHOWN.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    address, python, shown, *argv = sys.argv[1:]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    fds = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_inherited(fd)]  # noqa: PTH208 - pathlib is slow to import
    asked = {
        "python": shown,
        "argv": argv,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109
        "fds": fds,
        "blocked": list(blocked),
        "session": True,
    }
    warm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    forked = b"0"
    with contextlib.suppress(OSError):
        warm.connect(address)
        socket.send_fds(warm, [json.dumps(asked).encode()], fds)
        forked = warm.recv(1)
    if forked != b"1":
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.execv(python, [shown, *argv])  # noqa: S606
    for fd in fds:  # pipes end with the fork
        os.close(fd)

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            warm.send(bytes([number]))

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    (status,) = struct.unpack("i", warm.recv(4) or struct.pack("i", signal.SIGKILL))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_inherited(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # that of the listing
        return False


main()
