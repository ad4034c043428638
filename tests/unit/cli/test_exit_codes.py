"""Exit codes of the real program. 5, a gate that is missed, is with the gates; 130 is with the commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.client.scripted_server import SIZE, Fake, always, job, refuse, watch
from tests.waiting import PATIENCE

from mvprune.cli.shared.exit import ExitCode
from mvprune.v1 import job_pb2

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"


def run(fake: Fake, *argv: str) -> subprocess.CompletedProcess[str]:
    """mvpctl as a process, against the server."""
    env = {**os.environ, "MVPRUNE_ADDRESS": fake.address}
    return subprocess.run(
        [Path(sys.executable).with_name("mvpctl"), *argv], env=env, capture_output=True, text=True, timeout=PATIENCE
    )


def _refusing(code: grpc.StatusCode) -> Any:
    return lambda request, context: refuse(context, code, "no")


def _silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    done = threading.Event()
    context.add_callback(done.set)
    yield job_pb2.WatchJobResponse(sequence=1, job=job())
    done.wait(PATIENCE)


_ENDED = job_pb2.Failure(reason="INVALID_MODEL", message="no weights")


@pytest.mark.parametrize(
    ("expected", "argv", "answers"),
    [
        (ExitCode.OK, ("get", "j1"), {"GetJob": always(job(model_size=SIZE))}),
        (ExitCode.ERROR, ("get", "j1"), {"GetJob": _refusing(grpc.StatusCode.INTERNAL)}),
        (ExitCode.REFUSED, ("get",), {}),
        (ExitCode.REFUSED, ("get", "j1"), {"GetJob": _refusing(grpc.StatusCode.INVALID_ARGUMENT)}),
        (ExitCode.FAILED, ("wait", "j1"), {"GetJob": always(job("FAILED", failure=_ENDED))}),
        (ExitCode.CANCELLED, ("wait", "j1"), {"GetJob": always(job()), "WatchJob": watch(job("CANCELLED"))}),
        (ExitCode.TIMEOUT, ("wait", "j1", "--timeout", "0.1"), {"GetJob": always(job()), "WatchJob": _silent}),
        (ExitCode.UNREACHABLE, ("get", "j1", "--address", "127.0.0.1:1"), {}),
        (ExitCode.NOT_FOUND, ("get", "j1"), {"GetJob": _refusing(grpc.StatusCode.NOT_FOUND)}),
        (ExitCode.NOT_FOUND, ("get", "j1"), {"GetJob": _refusing(grpc.StatusCode.PERMISSION_DENIED)}),
    ],
    ids=lambda part: str(int(part)) if isinstance(part, ExitCode) else "",
)
def test_exit_codes(fake: Fake, expected: ExitCode, argv: tuple[str, ...], answers: dict[str, Any]) -> None:
    fake.answers |= answers
    done = run(fake, *argv)
    assert done.returncode == expected
    assert bool(done.stderr) == (expected != ExitCode.OK)
    assert "Traceback" not in done.stderr


def test_all_codes_are_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(code.value, code.name) for code in ExitCode]
