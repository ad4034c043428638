"""mvpctl: the command line. Each command is a module of its own, imported when it is called.

Exit codes, the same for all commands:

    0    ok
    1    an error that nothing below covers
    2    wrong usage, or a request that the server rejects
    3    the job, or the sweep, FAILED
    4    the job, or the sweep, was CANCELLED
    5    the job's result misses a gate; no point of the sweep passes its gates
    6    --timeout has passed, the job or the sweep continues
    7    the server cannot be reached
    8    not found, or not authorized
    130  interrupted; a job that was waited for continues

With `-o json` or `-o yaml` stdout is one document, or one for each update (`watch`); docs/json-output.md lists the
fields.
"""

from mvprune.cli._app import main

__all__ = ["main"]
