"""One reader of a page: a shell that keeps its variables and background jobs, and one Python namespace."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .blocks import Block, missing

SECONDS = 200  # of one block: many times what it takes on an idle machine
# Commands that run until Ctrl-C; a reader leaves them in another terminal.
_STAYING = re.compile(r"^(mvpctl (?:serve|server start|mcp --http) (?:.*\\\n)*?[^\n&#]*?)[ \t]*(?:#.*)?$", re.MULTILINE)


class Wrong(AssertionError):
    """A block does not do what the page says."""

    def __init__(self, where: object, problem: str, printed: str) -> None:
        super().__init__(f"{where}: {problem}\n{printed[-3000:]}")


class Reader:
    """Types the blocks of a page in its folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._scratch = folder / "typed"
        self._scratch.mkdir()
        self.folder = folder / "walk"
        self.folder.mkdir(exist_ok=True)
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._code = 0
        self._count = 0
        self._shell = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            text=True, cwd=self.folder, env=dict(environment), start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """Ends all that the shell started, if the page did not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()

    def answer(self, text: str) -> str:
        """Types something that is in no block. Returns what it printed."""
        code, printed = self._type(text)
        assert code == 0, printed
        return printed

    def run(self, block: Block, *, compared: bool = True) -> str:
        """Runs a block. Returns what it printed. Raises Wrong, also if a session shows something else."""
        if block.language == "console":
            for command, shown in block.sessions:
                self._converse(block, command, shown if compared else "")
            return ""
        if block.language == "python":
            return self._python(block)
        return self._sh(block)

    def _sh(self, block: Block) -> str:
        ready = "\nuntil mvpctl server status > status.txt 2>&1; do sleep 0.2; done"
        code, printed = self._type(_STAYING.sub(rf"\1 >> background.log 2>&1 &{ready}", block.text), exits=True)
        if code:
            raise Wrong(block, f"exit code {code}", f"{block.text}\n{printed}")
        return printed

    def _converse(self, block: Block, command: str, shown: str) -> None:
        """A command of a session; one that shows an error must fail, all others must not."""
        if _STAYING.match(command):
            log = self.folder / "background.log"
            self._type(_STAYING.sub(r"\1 > background.log 2>&1 &", command))
            end = time.monotonic() + SECONDS
            while (line := missing(shown, log.read_text() if log.exists() else "")) and time.monotonic() < end:
                time.sleep(0.05)
            printed = log.read_text()
        else:
            fails = bool(re.search(r"^error: ", shown, re.MULTILINE))
            code, printed = self._type(command)
            if bool(code) != fails:
                raise Wrong(block, f"exit code {code} of `{command}`", printed)
            line = missing(shown, printed)
        if line:
            raise Wrong(block, f"{line!r} is shown after `{command}`, and did not come", printed)

    def _type(self, text: str, *, exits: bool = False) -> tuple[int, str]:
        """The exit code and the output of some lines; with `exits` the shell ends at the first that fails."""
        self._count += 1
        script, output, code = (self._scratch / f"{self._count}.{name}" for name in ("sh", "out", "code"))
        script.write_text(("set -e\n" if exits else f"(exit {self._code})\n") + text.rstrip("\n") + "\n")
        assert self._shell.stdin is not None
        after = f"echo $? > {code}.new; set +e; mv {code}.new {code}\n"
        self._shell.stdin.write(f". {script} < /dev/null > {output} 2>&1; {after}")
        self._shell.stdin.flush()
        end = time.monotonic() + SECONDS
        while not code.exists():
            ended = self._shell.poll()
            if ended is not None:
                return ended or 1, output.read_text()
            if time.monotonic() > end:
                raise Wrong(text, f"it has not ended after {SECONDS} s", output.read_text())
            time.sleep(0.01)
        self._code = int(code.read_text())
        return self._code, output.read_text()

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        source = "\n" * (block.line - 1) + block.text  # lines of tracebacks are those of the page
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(source, block.page, "exec", dont_inherit=True), self._names)  # noqa: S102 (our own page)
            except Exception:
                raise Wrong(block, "an exception", f"{printed.getvalue()}\n{traceback.format_exc()}") from None
        return printed.getvalue()
