"""mvpctl: the command line. Each command is a module of its own, imported when it is called.

Exit codes, the same for all commands:

    0    ok
    1    an error that nothing below covers
    2    usage, or a request that the server refuses
    3    the job FAILED
    4    the job was CANCELLED
    6    --timeout passed, the job goes on
    7    the server cannot be reached
    8    not found, or not authorised
    130  interrupted; a job that was waited for goes on

With `-o json` the answer is one JSON document on stdout (`watch` and `logs` print one line, or bytes, a piece). Its
fields are those of the messages in proto/mvprune/v1, with times in RFC 3339 and durations in seconds. What `submit`,
`get` and `wait` print is a job with one field more, `result`: the artifact of a job that SUCCEEDED, else null.
"""

from mvprune.cli._app import main

__all__ = ["main"]
