"""The web console beside a server: a process of its own, a client of the server as any other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

from mvprune.common.addresses import split_address
from mvprune_service.api.access import ports
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings

_COMMAND = "import sys; from mvprune.cli import main; sys.exit(main(sys.argv[1:]))"
_SECONDS = 15.0  # until it has answered what has come in


@contextlib.asynccontextmanager
async def console(settings: Settings) -> AsyncIterator[None]:
    """Runs the console of a server that serves, if the settings want one. It prints its own address, or why it does not
    run. Users log in with their tokens; where the server asks for none, the address has a key.

    Raises:
        StartError: the setting is no address.
    """
    if not settings.console:
        yield
        return
    try:
        split_address(settings.console)
    except ValueError:
        raise StartError(f"--console must be HOST:PORT, got {settings.console!r}") from None
    command = ["console", "--no-browser", "--listen", settings.console]
    if ports.is_auth_required(settings):
        command += ["--login", "--sessions", str(settings.home / "console-sessions")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MVPRUNE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _COMMAND,
        *command,
        env={
            **environment,
            "MVPRUNE_HOME": str(settings.home),
        },  # it has the server's address and CA
        start_new_session=True,  # Ctrl-C is for the server, which ends it
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
