"""mvpctl server"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mvprune.cli._errors import UsageError
from mvprune.cli._exit import ExitCode

_HELP = """usage: mvpctl server start ...

Run the service on this machine; `mvpctl server start --help` lists its options.

example:
  mvpctl server start"""


def server_command(argv: Sequence[str]) -> int:
    """Starts the service; all that follows `start` is its own."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP)
        return ExitCode.OK
    if argv[0] != "start":
        raise UsageError(f"command: got {argv[0]!r}; allowed: start", "mvpctl server")
    try:
        from mvprune_service.server import main

        return main(list(argv[1:]))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("mvprune"):
            raise
        print("this needs the service: pip install 'mvprune[all]'", file=sys.stderr)
        return ExitCode.REFUSED
