"""A training step on all cores, alone and beside other processes, by how long threads spin before they sleep.

Run: make bench. Every reading is a process of its own; they take turns, and the best median counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from mvprune.common.threads import SPIN

_USUAL = "300000"  # libgomp's
_TURNS = (_USUAL, "10000", SPIN[1])
_BUSY = "while True: pass"
_STEPS = """
import statistics, time, torch
layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch, times = torch.randn(16, 32, 384), []
for _ in range(13):
    start = time.perf_counter()
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - start)
print(statistics.median(times[1:]))
"""


def seconds(turns: str, busy: int) -> float:
    """The median step of MiniLM's shape, of 16 x 32 tokens, beside `busy` processes that do nothing else."""
    with ExitStack() as others:
        for _ in range(busy):
            other = others.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY]))
            others.callback(other.kill)
        environment = {**os.environ, SPIN[0]: turns}
        done = subprocess.run([sys.executable, "-c", _STEPS], env=environment, capture_output=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    cores = len(os.sched_getaffinity(0))
    found: dict[tuple[int, str], float] = {}
    for _ in range(rounds):
        for busy in (0, 1, cores):
            for turns in _TURNS:
                key = busy, turns
                found[key] = min(found.get(key, float("inf")), seconds(turns, busy))
    table = Table(title=f"a step of MiniLM-L6's shape on {cores} cores, best of {rounds} medians")
    for column in ("beside", *(f"{int(turns):,} turns" for turns in _TURNS)):
        table.add_column(column, justify="right")
    for busy in (0, 1, cores):
        usual = found[busy, _USUAL]
        shown = (f"{1000 * found[busy, turns]:.0f} ms, {found[busy, turns] / usual:.2f}x" for turns in _TURNS)
        table.add_row(f"{busy} busy", *shown)
    Console().print(table)


if __name__ == "__main__":
    main()
