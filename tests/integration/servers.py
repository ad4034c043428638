"""mvprune-server as a process that tests start, signal, kill and start again: a fork of one that has imported it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvprune_service.executors.processes import kill_marked

from ..neighbours import free_ports
from ..waiting import until
from ..warm import fork
from ..warm.python import warm_python

SERVER = Path(sys.executable).with_name("mvprune-server")


class Server:
    """An mvprune-server on ports and a home folder that outlive it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._ports = free_ports(2)
        self.address = f"127.0.0.1:{self._ports[0]}"
        self.worker_address = f"127.0.0.1:{self._ports[1]}"
        self.command: tuple[str | Path, ...] = (SERVER,)
        self.process: subprocess.Popen[bytes] | fork.Fork | None = None

    def start(self, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes] | fork.Fork:
        """As `launch`, but returns once it serves."""
        (self.home / "server.json").unlink(missing_ok=True)  # a killed server leaves it
        process = self.launch(env, **more)
        until(lambda: process.poll() is not None or (self.home / "server.json").exists(), "the server started")
        assert process.poll() is None, self.log()
        return process

    def launch(self, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes] | fork.Fork:
        """Starts it. `more` are options, `env` is set beside this process's environment."""
        options = {
            "home": self.home,
            "address": self.address,
            "worker-address": self.worker_address,
            "executor": "local",
            "roots": self.home.parent,
            "lease-seconds": 300,  # a busy machine takes nobody's job away
            "heartbeat-seconds": 0.2,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        if options["executor"] == "local":
            options.setdefault("worker-python", warm_python())
        command = [*self.command, *(f"--{name}={value}" for name, value in options.items())]
        environment = {**os.environ, **(env or {})}
        self.process = None
        with (self.home.parent / "server.log").open("ab") as log:
            if command[0] == SERVER:
                self.process = fork.start(sys.executable, command, environment, (0, log.fileno(), log.fileno()))
            if self.process is None:
                self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self.process

    def log(self) -> str:
        """What it wrote, all starts together."""
        return (self.home.parent / "server.log").read_text()

    def states(self) -> dict[str, str]:
        """Of all jobs, with the server down."""
        with closing(sqlite3.connect(self.home / "mvprune.sqlite")) as database:
            return dict(database.execute("SELECT job_id, state FROM jobs"))

    def close(self) -> None:
        """Kills it, and its workers, which outlive it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        kill_marked("MVPRUNE_SCRATCH", str(self.home / "scratch"))


@dataclass(frozen=True)
class Data:
    """Files that pass for a data set."""

    train: Path
    validation: Path

    @classmethod
    def write(cls, folder: Path) -> Data:
        data = cls(folder / "train.tsv", folder / "validation.tsv")
        for file in (data.train, data.validation):
            file.write_text("text\tlabel\ngood\t1\nbad\t0\n")
        return data
