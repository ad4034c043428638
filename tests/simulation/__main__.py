"""python -m tests.simulation SEEDS: see contributing/simulation.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

from .happenings import plan
from .planted import PLANTED
from .searching import failing, shorten
from .world import tell

_PART = 25  # seeds that a process takes at a time
_SHOWN = 3  # histories that fail


def main() -> int:
    """The exit code: 1 if a history fails."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a history
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    given = _parser().parse_args()
    first, _, last = given.seeds.partition("..")
    seeds = [str(number) for number in range(int(first), int(last or first) + 1)]
    with ExitStack() as planted, tempfile.TemporaryDirectory(prefix="mvprune-simulation-") as tempfile.tempdir:
        if given.plant:
            planted.enter_context(PLANTED[given.plant]())
        if given.trace or given.keep:
            return _show(seeds[0], given.keep)
        began = time.perf_counter()
        failed: list[str] = []
        done = 0
        for count, found in _search(seeds, given.processes):
            done += count
            failed += found
            if len(failed) >= (1 if given.first else _SHOWN):
                break
        for seed in () if given.first else failed[:_SHOWN]:
            print(shorten(seed), end="\n\n")
    seconds = time.perf_counter() - began
    print(f"{done:,} histories, {len(failed)} of them fail; {seconds:.1f} s, {60 * done / seconds:,.0f} a minute")
    return 1 if failed else 0


def _search(seeds: list[str], processes: int) -> Iterator[tuple[int, list[str]]]:
    """How many histories were run, and which failed, again and again."""
    if processes == 1:
        for seed in seeds:
            yield 1, list(failing([seed]))
        return
    parts = [seeds[start : start + _PART] for start in range(0, len(seeds), _PART)]
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        yield from pool.map(_of_part, parts)


def _of_part(part: list[str]) -> tuple[int, list[str]]:
    return len(part), list(failing(part))


def _show(seed: str, keep: str) -> int:
    happenings = plan(seed)
    kept = [happenings[int(number)] for number in keep.split(",")] if keep else happenings
    outcome = tell(seed, kept)
    print(*kept, "", *outcome.trace, f"{outcome.failure or 'nothing fails'}", sep="\n")
    return 1 if outcome.failure else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("seeds", metavar="SEEDS", help="1..2000, or one number")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--trace", action="store_true", help="show all of the first history")
    parser.add_argument("--keep", default="", metavar="N,N", help="only these happenings of the first history")
    parser.add_argument("--first", action="store_true", help="stop at a history that fails, and leave it long")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="make this mistake in the product")
    return parser


if __name__ == "__main__":
    sys.exit(main())
