"""mvprune-server: starts the control plane and runs it until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

# Workers are started by exec from threads; gRPC's fork handlers have nothing to protect here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from pydantic import ValidationError

from mvprune_service.config import Settings
from mvprune_service.service import Service, StartError

START_FAILED = 1
USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the server with the settings in `argv` (default: the command line's); returns the exit code."""
    try:
        settings = Settings(_cli_parse_args=list(sys.argv[1:] if argv is None else argv))  # type: ignore[call-arg]
    except ValidationError as error:
        for problem in error.errors():
            field = "--" + "-".join(str(part) for part in problem["loc"][:1]).replace("_", "-")
            print(f"error: {field}: got {problem['input']!r}; {problem['msg']}", file=sys.stderr)
        return USAGE_ERROR
    except SystemExit as end:  # argparse, after --help or an error
        return end.code if isinstance(end.code, int) else USAGE_ERROR
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        asyncio.run(_serve(settings))
    except (StartError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return START_FAILED
    return 0


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _say("starting …")
    async with Service(settings) as service:
        roots = settings.allowed_roots
        _say(f"mvprune serves clients on {service.address}, workers on {service.worker_address}")
        _say(f"  runs jobs on   {service.executor_text}")
        _say(f"  keeps state in {settings.home}, artifacts in {settings.store_url}")
        _say(f"  may read       {', '.join(str(path) for path in roots.allowed)}")
        _say("Ctrl-C stops it.")
        await stop.wait()
        _say("stopping …")


def _say(text: str) -> None:
    print(text, flush=True)
