"""`python -m mvprune_workers`: the supervisor."""

from __future__ import annotations

import os
import sys

from mvprune_workers.supervisor import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: that would wait for an upload that was given up.
    os._exit(code)
