"""Starts servers as processes of their own, quickly: forked from a process that has the libraries loaded already.

Nothing of this project is loaded there: the environment of each server is what it reads when it starts.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

_LIBRARIES = (
    "alembic.autogenerate",
    "alembic.context",
    "boto3.session",
    "google.rpc.error_details_pb2",
    "google.rpc.status_pb2",
    "grpc.aio",
    "grpc_health.v1.health",
    "logging.config",
    "psycopg",
    "pyarrow.parquet",
    "pydantic_settings",
    "pytest",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.orm",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([*_LIBRARIES])


def start_server(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> BaseProcess:
    """A process that runs `mvprune-server ARGUMENTS`."""
    process = _context.Process(target=_serve, args=(list(arguments), dict(environment), str(log)))
    process.start()
    return process


def _serve(arguments: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    from mvprune_service.server import main

    raise SystemExit(main(arguments))
