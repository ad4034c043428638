"""mvprune-server: starts the control plane and runs it until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mvprune.artifact.errors import MissingExtra, needs
from mvprune.common.addresses import exempt_this_machine

_REFUSED = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, prog: str = "mvprune-server") -> int:
    """Runs the server with the settings in `argv` (default: those of the command line). Returns the exit code.

    Args:
        prog: name of the program in its help and errors.
    """
    exempt_this_machine(os.environ)
    try:
        with needs("the service", "all"):
            from mvprune_service.assembly.running import (
                run,  # takes a second, in which Ctrl-C must not print a stack trace
            )

        return run(sys.argv[1:] if argv is None else argv, prog)
    except MissingExtra as error:
        print(f"error: {error}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
