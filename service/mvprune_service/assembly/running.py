"""Runs the control plane, with the settings of a command line, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence

# Workers are started by exec from threads; gRPC's fork handlers have nothing to protect here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's own lines on stderr, such as one for each failed handshake, have another format than the server's.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import uvloop
from pydantic import ValidationError
from pydantic_settings import SettingsError

from mvprune.common import tracing
from mvprune_service.assembly.console import console
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.command_line import from_command_line, usage_errors
from mvprune_service.config import Settings
from mvprune_service.executors.base import StartCancelled
from mvprune_service.observability import descriptors, logs

START_FAILED = 1
USAGE_ERROR = 2
_SWITCH_SECONDS = 0.0005  # after which a thread lets others run: by default the event loop waits ten times as long
_NOTHING = "nothing on this machine (--models, --data, --roots), only the hub"


def run(argv: Sequence[str], prog: str) -> int:
    """Returns the exit code. Raises KeyboardInterrupt for a SIGINT that arrives before signals are handled."""
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
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        tracing.start("mvprune-server")
    except tracing.BadSetting as error:
        _refuse(str(error))
        return USAGE_ERROR
    try:
        uvloop.run(_serve(settings))
    except StartCancelled:
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
    async with Service(settings, start_cancelled=signals.stop.is_set) as service:
        gc.collect()
        gc.freeze()  # objects made by the start live as long as the server: the collector need not visit them
        _say(f"mvprune serves clients on {service.address}, workers on {service.worker_address}")
        _say(f"  runs jobs on   {service.resources.executor.description}")
        _say(f"  keeps state in {settings.home}, artifacts in {settings.store_url}")
        roots = service.resources.roots
        _say(f"  may read       {', '.join((*map(str, roots.allowed), *roots.buckets)) or _NOTHING}")
        if service.http_address:
            scheme = "https" if service.settings.tls_cert else "http"
            _say(f"  speaks HTTP    at {scheme}://{service.http_address}/v1/openapi.json")
        if service.metrics_address:
            _say(f"  shows metrics  at http://{service.metrics_address}/metrics")
        async with console(settings):
            _say("Ctrl-C stops it.")
            await signals.stop.wait()
            seconds = settings.drain_seconds if signals.is_planned else 0.0
            _say(f"stopping{f', in {seconds:g} s' if seconds else ''} … (a second signal: at once)")
        await service.drain(seconds, signals.force_stop)


class Signals:
    """SIGTERM and SIGINT: the first sets `stop`, the second `force_stop`, the third ends the process.

    `is_planned`: the first was SIGTERM, as from a service manager. After a Ctrl-C no load balancer needs time.
    """

    def __init__(self) -> None:
        self.stop, self.force_stop = asyncio.Event(), asyncio.Event()
        self.is_planned = False
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        if self.stop.is_set():
            self.force_stop.set()
            for each in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(each)
        else:
            self.is_planned = number is signal.SIGTERM
            self.stop.set()


def _refuse(text: str) -> None:
    """Prints why the server does not start. A setting in the text may be a URL with a password."""
    print(f"error: {logs.redact(text)}", file=sys.stderr)


def _say(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:  # a closed pipe or a full disk must not stop the server
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
