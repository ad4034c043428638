"""`make demo`: a service of its own, a real search on a real model and real text, its artifact on disk and its speed.

    python scripts/demo.py [OPTION OF mvpctl submit ...]

Everything lives under .demo/ in the current folder; nothing outside it is touched.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from demo_data import DemoInputError, build

from mvprune.cli.shared.exit import ExitCode

FOLDER = Path(".demo").resolve()
BIN = Path(sys.executable).parent
OPTIONS = {"--max-loss": "1.0", "--max-steps": "120", "--batch-size": "16", "--cpus": "2"}  # unless others are given
START_SECONDS = 120
STOP_SECONDS = 30


@contextmanager
def server(home: Path, log: Path, *options: str | Path) -> Iterator[str]:
    """Runs mvprune-server on free ports, with these options. Yields its address, and stops it at the end."""
    command = [BIN / "mvprune-server", "--home", home, "--address", "127.0.0.1:0", "--worker-address", "127.0.0.1:0"]
    command += ["--drain-seconds", "0"]
    status = home / "server.json"
    status.unlink(missing_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not status.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not start; the end of {log}:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield json.loads(status.read_text())["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def console(address: str) -> Iterator[str]:
    """Runs a console of the server, if it is installed. Yields the address to be opened; "" where there is none."""
    if find_spec("jinja2") is None or find_spec("uvicorn") is None:
        yield ""
        return
    command = [BIN / "mvpctl", "console", "--no-browser", "--quiet", "--address", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main(options: list[str]) -> int:
    """Runs the demo, with more options of `mvpctl submit`; returns mvpctl's exit code."""
    started = time.monotonic()
    print("1/4  a pretrained encoder and labelled text, from two packages …", flush=True)
    try:
        inputs = build(FOLDER / "inputs")
    except DemoInputError as error:
        sys.exit(f"error: {error}")
    shutil.rmtree(FOLDER / "home", ignore_errors=True)  # a demo that was interrupted left its job there
    print("2/4  starting the service: SQLite, a folder as store, a Ray of its own …", flush=True)
    with server(FOLDER / "home", FOLDER / "server.log", "--roots", FOLDER / "inputs") as address:
        target = FOLDER / "artifacts" / time.strftime("%Y%m%d-%H%M%S")
        command = [
            "submit", "--model", f"server:{inputs.model}", "--task", "text-classification",
            "--train", f"server:{inputs.train}", "--validation", f"server:{inputs.validation}",
            *(word for option in OPTIONS.items() if option[0] not in options for word in option),
            *options, "--wait", "--download", str(target),
        ]  # fmt: skip
        with console(address) as page:
            if page:
                print(f"     in a browser, until the job ends: {page}", flush=True)
            print(f"3/4  mvpctl {' '.join(command)}", flush=True)
            code = subprocess.call([BIN / "mvpctl", *command], env={**os.environ, "MVPRUNE_ADDRESS": address})
        print("4/4  stopping the service …", flush=True)
    if code in (ExitCode.OK, ExitCode.GATE):  # where nothing passes, the best result is downloaded
        print(f"the artifact, with its manifest.json, is in {target}")
        benchmark = ["benchmark", str(target)]
        print(f"     mvpctl {' '.join(benchmark)}", flush=True)
        subprocess.call([BIN / "mvpctl", *benchmark])
    print(f"took {time.monotonic() - started:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
