"""The sparse runtime beside what else runs a BERT on a CPU: BERT-base's shape or MiniLM's, random weights.

Run: make bench-runtime. All that is compared runs in one process, in turns, the least of N rounds; what counts are the
ratios to torch's dense fp32. Memory is measured in processes of its own. Rivals are dense: their speed does not hang on
the masks. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pruned_bert import MASKS, SHAPES, pruned_bert
from rich.console import Console
from rich.table import Table
from runtime_fastest import show_fastest
from runtime_parts import show_parts
from runtime_rivals import BUILDERS, Call, CannotRunHere, Rivals

from mvprune.runtime import backends, kernel, optimize

DENSE = "torch fp32"
DENSITIES = (0.03, 0.05, 0.1)
ACTIVATIONS = {"fp32": "", "int8": ", int8 activations"}


@dataclass(frozen=True)
class Case:
    """One column of the table."""

    tokens: int
    threads: int
    densities: tuple[float, ...] = DENSITIES
    int8: bool = False  # whether int8 activations are measured too
    batch: int = 1
    rivals: bool = True  # whether all are measured, or only torch's dense fp32

    def __str__(self) -> str:
        examples = f"{self.batch} x " if self.batch > 1 else ""
        return f"{examples}{self.tokens} tokens, {self.threads} thread{'s' * (self.threads > 1)}"


CASES = (
    Case(128, 1, int8=True),
    Case(128, 2, int8=True),
    Case(384, 1, DENSITIES[:1]),
    *(Case(tokens, 1, DENSITIES[:1], rivals=False) for tokens in (16, 64, 512)),
    *(Case(tokens, 1, DENSITIES[:1], batch=batch, rivals=False) for batch in (8, 32) for tokens in (16, 128)),
)

Seconds = dict[str, float]


def main() -> None:
    """Prints a line for each measurement, tables, and the same as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 128, 384, 512], help="leaves the others out")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="leaves the others out")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="leaves the others out")
    parser.add_argument("--shape", choices=SHAPES, default="BERT-base")
    parser.add_argument("--densities", type=float, nargs="+", help="in place of those of each case")
    parser.add_argument("--cpu-time", action="store_true", help="of the calling thread: where other programs run too")
    parser.add_argument("--rivals", nargs="*", choices=BUILDERS, default=list(BUILDERS))
    parser.add_argument("--parts", action="store_true", help="prints where the time of a call goes, and nothing else")
    parser.add_argument(
        "--fastest",
        nargs="?",
        const="1x128",
        metavar="BATCHxTOKENS",
        help="prints what is the fastest at each density, with the first number of --threads, and nothing else",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures too")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # exporters tell much
    if args.parts:
        show_parts(args.shape, (DENSITIES[0], DENSITIES[-1]), args.rounds)
        return
    if args.fastest:
        show_fastest(args.shape, args.fastest, args.threads[0], args.rounds, in_turns)
        return
    absent: dict[str, str] = {}
    found: dict[Case, Seconds] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            if case.tokens in args.tokens and case.threads in args.threads and case.batch in args.batches:
                rivals = [DENSE, *(args.rivals if case.rivals else ())]
                if args.densities:
                    case = replace(case, densities=tuple(args.densities))
                calls = contenders(case, args.shape, rivals, Path(scratch), absent)
                found[case] = in_turns(
                    case, calls, args.rounds, time.thread_time if args.cpu_time else time.perf_counter
                )
    show(found, absent)
    if args.json:
        args.json.write_text(json.dumps(report(found, absent), indent=2) + "\n")


def contenders(case: Case, shape: str, rivals: list[str], folder: Path, absent: dict[str, str]) -> dict[str, Call]:
    """The call of each contender; adds to `absent` what cannot run here, with the reason."""
    torch.set_num_threads(case.threads)
    ids = torch.randint(1000, 30_000, (case.batch, case.tokens), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    builder = Rivals(pruned_bert(DENSITIES[0], "random", shape=shape), inputs, case.threads, folder)
    calls: dict[str, Call] = {}
    for name in dict.fromkeys(rivals):
        say(f"{case}: building {name}")
        try:
            with contextlib.redirect_stdout(None):
                calls[name] = builder.build(name)
        except CannotRunHere as reason:
            absent[name] = str(reason)
    for density in case.densities:
        for masks, activations in itertools.product(MASKS, ACTIVATIONS if case.int8 else ("fp32",)):
            name = f"**sparse, {density:.0%}**, {masks} masks{ACTIVATIONS[activations]}"
            tokens = case.batch * case.tokens
            model: Any = optimize(pruned_bert(density, masks, shape=shape), tokens=tokens, activations=activations)
            say(f"{case}: {name}: {backends(model)}")
            calls[name] = lambda model=model: model(**inputs)
    if case == CASES[0]:
        fallback = optimize(pruned_bert(DENSITIES[0], "uneven", shape=shape), tokens=case.tokens, backend="csr")
        calls["sparse, 3%, uneven masks, without the kernel"] = lambda: fallback(**inputs)
    return calls


def in_turns(case: object, calls: dict[str, Call], rounds: int, clock: Callable[[], float]) -> Seconds:
    """The least seconds of each call, by the clock."""
    best = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for turn in range(rounds + 1):
            for name, call in calls.items():
                start = clock()
                call()
                if turn:  # the first round warms up
                    best[name] = min(best[name], clock() - start)
                time.sleep(0.02)  # until threads that spin for more work give up
    for name, seconds in best.items():
        say(f"{case}: {name}: {1000 * seconds:.1f} ms, {best[DENSE] / seconds:.2f}x")
    return best


def show(found: dict[Case, Seconds], absent: dict[str, str]) -> None:
    """A table for people, and the Markdown of docs/runtime.md."""
    table = Table(title=f"milliseconds, and times as fast as {DENSE}; kernel: {kernel.load() or kernel.isa()}")
    for title in ("", *map(str, found)):
        table.add_column(title, justify="right" if title else "left")
    rows = table_rows(found)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console(width=140).print(table)
    for name, reason in absent.items():
        print(f"{name} cannot run here: {reason}")
    print("\n| |", " | ".join(map(str, found)), "|\n|---|" + "---|" * len(found))
    for row in rows:
        print("|", " | ".join(row), "|")


def table_rows(found: dict[Case, Seconds]) -> list[list[str]]:
    """One for each contender: its name, then a cell for each case."""
    names = dict.fromkeys(name for seconds in found.values() for name in seconds)
    return [[name, *(_cell(seconds, name) for seconds in found.values())] for name in names]


def _cell(seconds: Seconds, name: str) -> str:
    if name not in seconds:
        return ""
    return f"{1000 * seconds[name]:.1f} ms, {seconds[DENSE] / seconds[name]:.2f}x"


def report(found: dict[Case, Seconds], absent: dict[str, str]) -> dict[str, Any]:
    """All figures, as JSON has them."""
    cases = [
        {
            "tokens": case.tokens,
            "threads": case.threads,
            "batch": case.batch,
            "seconds": {n.replace("**", ""): s for n, s in seconds.items()},
        }
        for case, seconds in found.items()
    ]
    return {"kernel": kernel.load() or kernel.isa(), "cases": cases, "absent": absent}


def say(text: str) -> None:
    """One line of progress."""
    print(text.replace("**", ""), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
