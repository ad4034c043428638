"""Writes a line every now and then until it is killed, or its supervisor is dead."""

import itertools
import select
import sys

sys.stdin.readline()  # the job
for step in itertools.count():
    print("step", step, flush=True)
    if select.select([sys.stdin], [], [], 0.1)[0]:
        sys.exit(1)
