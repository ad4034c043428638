"""Writes a line, or CHATTY_LINES lines, every now and then until it is killed, or its supervisor is dead."""

import itertools
import os
import select
import sys

sys.stdin.readline()  # the job
lines = int(os.environ.get("CHATTY_LINES", "1"))
for step in itertools.count():
    print("step", step, flush=step % lines == 0)
    if step % lines == 0 and select.select([sys.stdin], [], [], 0.1)[0]:
        sys.exit(1)
