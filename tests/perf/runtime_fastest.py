"""What is the fastest at each density, the sparse runtime or a rival: bench_runtime.py --fastest [BATCHxTOKENS].

Each row is a density of random masks, single weights or aligned blocks of 1x4. Rivals compute all weights: their time
is the same at each density. All take turns in one process. The least CPU time of the calling thread counts, which other
programs disturb less than time on the clock; with several threads it is time on the clock.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pruned_bert import pruned_bert
from runtime_rivals import Call, CannotRunHere, Rivals

from mvprune.runtime import optimize
from mvprune.runtime.kernel import Activations

_DENSITIES = (0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
_OURS: dict[str, tuple[str, Activations]] = {
    "single weights, fp32": ("random", "fp32"),
    "single weights, int8": ("random", "int8"),
    "1x4, int8": ("blocks", "int8"),
}
_DENSE = "torch fp32"
_RIVALS = ("torch int8 (dynamic)", "ONNX Runtime int8 (dynamic)", "OpenVINO int8 (static)")


def show_fastest(shape: str, size: str, threads: int, rounds: int, in_turns: Callable[..., dict[str, float]]) -> None:
    """Prints a table as Markdown: times as fast as torch fp32, the fastest of each density in bold."""
    batch, tokens = map(int, size.split("x"))
    torch.set_num_threads(threads)
    ids = torch.randint(1000, 30_000, (batch, tokens), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    dense = pruned_bert(1.0, "random", shape=shape)
    calls: dict[str, Call] = {}
    with tempfile.TemporaryDirectory() as folder:
        builder = Rivals(dense, inputs, threads, Path(folder))
        for name in (_DENSE, *_RIVALS):
            try:
                with contextlib.redirect_stdout(None):
                    calls[name] = builder.build(name)
            except CannotRunHere as reason:
                print(f"{name} cannot run here: {reason}")
        for density in _DENSITIES:
            for name, (masks, activations) in _OURS.items():
                made = pruned_bert(density, masks, shape=shape)
                model: Any = optimize(made, tokens=batch * tokens, activations=activations)
                calls[_key(name, density)] = lambda model=model: model(**inputs)
        clock = time.thread_time if threads == 1 else time.perf_counter
        best = in_turns(f"{shape}, {size} tokens, {threads} thread(s)", calls, rounds, clock)
    rivals = [name for name in (_DENSE, *_RIVALS) if name in best]
    columns = [*_OURS, *rivals]
    print("\n| kept |", " | ".join(columns), "| fastest |\n|" + "---|" * (len(columns) + 2))
    for density in _DENSITIES:
        seconds = {name: best[_key(name, density)] for name in _OURS} | {name: best[name] for name in rivals}
        fastest = min(seconds, key=seconds.__getitem__)
        cells = [
            f"{'**' * (name == fastest)}{1000 * took:.1f} ms, {best[_DENSE] / took:.2f}x{'**' * (name == fastest)}"
            for name, took in seconds.items()
        ]
        print("|", " | ".join([f"{density:.0%}", *cells, fastest]), "|")


def _key(name: str, density: float) -> str:
    return f"{name}, {density:.0%}"
