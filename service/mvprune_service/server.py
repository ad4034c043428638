"""mvprune-server: starts the control plane and runs it until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

# Workers are started by exec from threads; gRPC's fork handlers have nothing to protect here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer
from pydantic import ValidationError

from mvprune_service.config import Settings
from mvprune_service.executors.base import ExecutorUnavailable
from mvprune_service.service import Service, StartError

USAGE_ERROR = 2
START_FAILED = 1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def start(
    home: Annotated[Path | None, typer.Option(help="Folder for database, store and keys. [MVPRUNE_HOME]")] = None,
    address: Annotated[str | None, typer.Option(help="HOST:PORT for clients; port 0 picks a free one.")] = None,
    worker_address: Annotated[str | None, typer.Option(help="HOST:PORT for workers.")] = None,
    database_url: Annotated[str | None, typer.Option(help="SQLAlchemy URL; default: SQLite in the home.")] = None,
    store: Annotated[str | None, typer.Option(help="file:///folder or s3://bucket/prefix.")] = None,
    executor: Annotated[str | None, typer.Option(help="ray, or local: plain processes on this machine.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="http://host:8265; default: a Ray of its own.")] = None,
    models: Annotated[Path | None, typer.Option(help="Folder of models, found by name. [MVPRUNE_MODELS]")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of task data, GLUE's layout. [MVPRUNE_DATA]")] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder that clients may name files in; repeatable. Default: the current one. [MVPRUNE_ROOTS]"
        ),
    ] = None,
    lease_seconds: Annotated[float | None, typer.Option(help="How long a silent worker keeps its lease.")] = None,
    allow_remote: Annotated[bool | None, typer.Option(help="Listen beyond this machine, without TLS.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Start the control plane with its workers, on this machine unless told otherwise.

    Example: mvprune-server --models ./models --data ./glue
    """
    given = {
        "home": home, "address": address, "worker_address": worker_address, "database_url": database_url,
        "store": store, "executor": executor, "ray_address": ray_address, "models": models, "data": data,
        "roots": tuple(root) if root else None, "lease_seconds": lease_seconds, "allow_remote": allow_remote,
    }  # fmt: skip
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise typer.BadParameter(f"got {log_level!r}; allowed: debug, info, warning, error", param_hint="--log-level")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    settings = _settings({name: value for name, value in given.items() if value is not None})
    try:
        asyncio.run(_serve(settings))
    except (StartError, ExecutorUnavailable, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(START_FAILED) from None


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return Settings(**given)
    except ValidationError as error:
        for problem in error.errors():
            field = ".".join(str(part) for part in problem["loc"])
            typer.echo(f"error: {field}: got {problem['input']!r}; {problem['msg']}", err=True)
        raise typer.Exit(USAGE_ERROR) from None


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    typer.echo("starting …")
    async with Service(settings) as service:
        roots = settings.allowed_roots
        typer.echo(f"mvprune serves clients on {service.address}, workers on {service.worker_address}")
        typer.echo(f"  runs jobs on   {service.executor_text}")
        typer.echo(f"  keeps state in {settings.home}, artifacts in {settings.store_url}")
        typer.echo(f"  may read       {', '.join(str(path) for path in roots.allowed)}")
        typer.echo("Ctrl-C stops it.")
        await stop.wait()
        typer.echo("stopping …")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    try:
        result = app(args=None if argv is None else list(argv), standalone_mode=True, prog_name="mvprune-server")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else START_FAILED
    return result if isinstance(result, int) else 0
