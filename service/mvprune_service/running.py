"""Runs the control plane with the settings of a command line until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence

# Workers are started by exec from threads; gRPC's fork handlers have nothing to protect here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Its own lines on stderr, as of each failed handshake, would stand between the server's in another form.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import uvloop
from pydantic import ValidationError
from pydantic_settings import SettingsError

from mvprune.common import tracing
from mvprune_service.config import Settings, from_command_line, usage_errors
from mvprune_service.executors.embedded_ray import StartUnwanted
from mvprune_service.observability import descriptors, logs
from mvprune_service.service import Service, StartError

START_FAILED = 1
USAGE_ERROR = 2
_NOTHING = "nothing on this machine (--models, --data, --roots), only the hub"


def run(argv: Sequence[str], prog: str) -> int:
    """Returns the exit code. Raises KeyboardInterrupt for a SIGINT that comes before the server can be told."""
    try:
        settings = from_command_line(argv, prog)
    except ValidationError as error:
        for line in usage_errors(error):
            _refuse(line)
        return USAGE_ERROR
    except SettingsError as error:
        _refuse(f"{str(error).removeprefix('error parsing CLI: ')}\nsee: {prog} --help")
        return USAGE_ERROR
    except SystemExit:  # argparse, after --help
        return 0
    logs.configure(settings.log_level, settings.log_format)
    descriptors.raise_limit()
    tracing.start("mvprune-server")
    try:
        uvloop.run(_serve(settings))
    except StartUnwanted:
        _say("stopped before it served")
    except (StartError, OSError) as error:
        _refuse(str(error))
        return START_FAILED
    finally:
        tracing.stop()
    return 0


async def _serve(settings: Settings) -> None:
    signals = Signals()
    _say("starting …")
    async with Service(settings, unwanted=signals.stop.is_set) as service:
        gc.collect()
        gc.freeze()  # what starting has made stays: the collector need not go through it again and again
        _say(f"mvprune serves clients on {service.address}, workers on {service.worker_address}")
        _say(f"  runs jobs on   {service.executor_text}")
        _say(f"  keeps state in {settings.home}, artifacts in {settings.store_url}")
        _say(f"  may read       {', '.join((*map(str, service.roots.allowed), *service.roots.buckets)) or _NOTHING}")
        if service.metrics_address:
            _say(f"  shows metrics  at http://{service.metrics_address}/metrics")
        _say("Ctrl-C stops it.")
        await signals.stop.wait()
        seconds = settings.drain_seconds if signals.is_planned else 0.0
        _say(f"stopping{f', in {seconds:g} s' if seconds else ''} … (a second signal: at once)")
        await service.drain(seconds, signals.hurry)


class Signals:
    """SIGTERM and SIGINT: the first sets `stop`, the second `hurry`, the third ends the process.

    `is_planned`: the first was SIGTERM, as from a service manager. Who presses Ctrl-C waits for no load balancer.
    """

    def __init__(self) -> None:
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.is_planned = False
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            self.hurry.set()
            for each in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(each)
        else:
            self.is_planned = number is signal.SIGTERM
            self.stop.set()


def _refuse(text: str) -> None:
    """Says why there is no server. A setting that is shown may be a URL with a password."""
    print(f"error: {logs.redact(text)}", file=sys.stderr)


def _say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:  # a closed pipe, a full disk: the server is there for others than who reads this
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
