"""Exit codes of the supervisor. CompleteAttempt and the result marker report the outcome itself."""

from __future__ import annotations

import os
from enum import IntEnum

TRAINER_STOPPED = os.EX_TEMPFAIL  # a trainer stopped on SIGTERM, after a checkpoint if it could write one


class ExitCode(IntEnum):
    """How a supervisor ended."""

    PUBLISHED = 0  # everything is in the store, marker included
    USAGE = 2  # an environment variable is missing or malformed; nothing was started
    FAILED = 20  # the attempt failed and the control plane knows why
    CANCELLED = 21  # cancelled on request, acknowledged
    REFUSED = 22  # the claim was refused: another attempt or runner owns the job
    LEASE_LOST = 23  # the lease was lost during the attempt; nothing was published
    UNREACHABLE = 24  # no control plane to claim from, or to report an outcome to that is not in the store
    PREEMPTED = 25  # the supervisor itself received SIGTERM or SIGINT
