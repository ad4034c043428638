"""How many threads may compute, and how those of math libraries wait for one another."""

from __future__ import annotations

import os
import sys

# The variable, and the turns for which a thread of OpenMP spins before it sleeps. On a core that is another process's
# too, a thread that spins holds up the one that it waits for; by default for 300,000. Read when torch is imported.
SPIN = ("GOMP_SPINCOUNT", "3000")


def cores() -> int:
    """Cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
