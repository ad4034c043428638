"""docs/quickstart.md, line by line, in a fresh folder against the server that it starts itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..neighbours import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END_OF_BLOCK = "=== end of block ==="
SECONDS = 540  # ten times what it takes on an idle machine


def script(blocks: list[tuple[str, str]]) -> str:
    """One session of a shell: every block, and a line after each."""
    lines = ["set -eu"]
    for language, text in blocks:
        if language == "python":
            lines += ["python - <<'END_OF_PYTHON'", text, "END_OF_PYTHON"]
        elif language == "sh":
            lines.append(text)
        if language != "text":
            lines.append(f"echo '{END_OF_BLOCK}'")
    return "\n".join(lines)


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, ids, times, the width of columns."""
    line = re.sub(r"\b(text-classification)-[a-z0-9]{6}\b", r"\1-ID", line)
    return " ".join(re.sub(r"[+-]?\d[\d.,:]*(e-?\d+)?", "#", line).split())


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
def test_every_block_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    address, worker_address, http = (f"127.0.0.1:{port}" for port in free_ports(3))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "MVPRUNE_HOME": str(tmp_path / "home"),
        "MVPRUNE_ADDRESS": address,
        "MVPRUNE_WORKER_ADDRESS": worker_address,
    }
    walk = tmp_path / "walk"
    walk.mkdir()
    shown = tmp_path / "printed.txt"
    with shown.open("w") as output:
        session = subprocess.Popen(
            ["bash", "-c", script(blocks).replace("127.0.0.1:8080", http)],
            cwd=walk, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        code = session.wait(SECONDS)
    finally:
        stop(session)
        printed = shown.read_text()
        print(printed, *(log.read_text() for log in walk.glob("*.log")), sep="\n")  # seen if the test fails
    assert code == 0
    compare(blocks, printed.split(f"{END_OF_BLOCK}\n"))


def stop(session: subprocess.Popen[str]) -> None:
    """Ends all that a session started, if it did not do so itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session.pid, signal.SIGKILL)
    session.wait()


def compare(blocks: list[tuple[str, str]], printed: list[str]) -> None:
    """What is shown after a block has come, line by line; "…" stands for any number of lines."""
    outputs = iter(printed)
    output = ""
    for language, text in blocks:
        if language != "text":
            output = next(outputs)
            continue
        rest = iter([shape(line) for line in output.splitlines()])
        for line in map(shape, text.splitlines()):
            if line == "…":
                continue
            assert line in rest, f"{line!r} is shown, and did not come in\n{output}"


@pytest.mark.parametrize("language", ["sh", "python", "text"])
def test_the_page_has_blocks_of_all_kinds(language: str) -> None:
    assert any(kind == language for kind, _ in BLOCK.findall(PAGE.read_text(encoding="utf-8")))
