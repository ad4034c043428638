"""Where the time of a call goes, beside the least that arithmetic allows: bench_runtime.py --parts.

A part's time is a difference, of passes with and without it, in CPU time, which other programs disturb less. A pass
without products has matrices of zeros; one without attention has a head of one feature. What a core can do at most is
measured by peak.cpp: multiply-adds in registers, and with one operand from the first and from the second cache, which
the panels of the products come from.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pruned_bert import pruned_bert

from mvprune.runtime import kernel, optimize
from mvprune.runtime.kernel import Packed
from mvprune.runtime.layers import Affine, Layer, Layers
from native import build

IN_REGISTERS = "in registers"

_FLAGS = {"avx512": (16, ["-mavx512f", "-mfma", "-mprefer-vector-width=512"]), "avx2": (8, ["-mavx2", "-mfma"])}
_SUMS = 12  # kSums of peak.cpp
_CACHES = {"L1": 16 << 10, "L2": 256 << 10}  # bytes that surely lie there
_GELU, _EXP, _NORM = 18, 12, 8  # multiply-adds, or what takes as long, of a value; norm: with the sum before it
_PRODUCTS = ("query", "key", "value", "out", "up", "down")


@dataclass(frozen=True)
class Part:
    """A row of the table; seconds."""

    name: str
    work: str
    least: float
    measured: float


def show_parts(shape: str, densities: tuple[float, ...], rounds: int, tokens: int = 128) -> None:
    """Prints a table as Markdown for each density: one example, one thread."""
    torch.set_num_threads(1)
    peak = peaks()
    print(
        f"{kernel.isa()}: " + ", ".join(f"{rate / 1e9:.1f} G multiply-adds/s {where}" for where, rate in peak.items())
    )
    for density in densities:
        print(f"\n{shape}, {density:.0%}, {tokens} tokens\n\n| part | work | least | measured |\n|---|---|---|---|")
        parts = parts_of(shape, density, rounds, tokens, peak)
        parts.append(Part("all", "", sum(p.least for p in parts), sum(p.measured for p in parts)))
        for part in parts:
            print(f"| {part.name} | {part.work} | {1000 * part.least:.2f} ms | {1000 * part.measured:.2f} ms |")
        waits = (
            f"{where} {1000 * parts[0].least * peak[IN_REGISTERS] / peak[where]:.2f} ms" for where in list(peak)[1:]
        )
        print(f"\nThe sparse products with all columns {', '.join(waits)}")


def parts_of(shape: str, density: float, rounds: int, tokens: int, peak: Mapping[str, float]) -> list[Part]:
    """Each part of a call, with uneven masks."""
    model: Any = optimize(pruned_bert(density, "uneven", shape=shape), tokens=tokens)
    config, forward = model.config, model.bert.forward
    hidden, inner, heads, count = (
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_hidden_layers,
    )
    ids = torch.randint(1000, 30_000, (1, tokens), generator=torch.Generator().manual_seed(0))
    made: list[Layer] = [block.layer() for block in forward._blocks]
    nothing = [_emptied(layer, hidden) for layer in made]
    linear = [layer._replace(activation="none") for layer in nothing]
    narrow, none = (
        [_emptied(layer, size)._replace(heads=size, activation="none") for layer in made] for size in (heads, 1)
    )
    x, y = torch.randn(1, tokens, hidden), torch.empty(1, tokens, hidden)
    calls: dict[str, Callable[[], object]] = {
        "model": lambda: model(input_ids=ids, attention_mask=torch.ones_like(ids)),
    }
    for name, some in (("layers", made), ("nothing", nothing), ("linear", linear), ("narrow", narrow), ("none", none)):
        calls[name] = _call(Layers(some), x, y)
    took = _least(calls, rounds)
    weights = sum(len(getattr(layer, name).weight._indices) for layer in made for name in _PRODUCTS)
    products, attended = weights * tokens, 2 * tokens * tokens * hidden * count
    exponentials, activated, normed = (
        heads * tokens * tokens * count,
        inner * tokens * count,
        2 * hidden * tokens * count,
    )
    softmax = (took["narrow"] - took["none"]) * heads / (heads - 1)

    def part(name: str, work: str, operations: float, measured: float) -> Part:
        return Part(name, work, operations / peak[IN_REGISTERS], measured)

    return [
        part("sparse products", _millions(products, "multiply-adds"), products, took["layers"] - took["nothing"]),
        part(
            "attention: scores, values", _millions(attended, "multiply-adds"), attended, took["linear"] - took["narrow"]
        ),
        part("softmax", _millions(exponentials, "exponentials"), _EXP * exponentials, softmax),
        part("activation", _millions(activated, "values"), _GELU * activated, took["nothing"] - took["linear"]),
        part("norms, residuals, biases", _millions(normed, "values"), _NORM * normed, took["narrow"] - softmax),
        part(
            "embeddings, pooler, head, Python",
            f"{3 * tokens} rows, {hidden * hidden / 1e6:.2g} M weights",
            (3 + _NORM) * tokens * hidden + hidden * hidden,
            took["model"] - took["layers"],
        ),
    ]


def peaks() -> dict[str, float]:
    """Multiply-adds a second of one core: in registers, and with one operand from each cache."""
    lanes, flags = _FLAGS[kernel.isa()]
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/peak.so"
        source = str(Path(__file__).with_name("peak.cpp"))
        command = [*build.compiler(), "-O3", "-fPIC", "-shared", f"-DLANES={lanes}", *flags, source, "-o", target]
        subprocess.run(command, check=True)
        library = ctypes.CDLL(target)
    rounds = 2_000_000
    number = ctypes.c_int64
    found = {IN_REGISTERS: _SUMS * lanes * rounds / _best(lambda: library.in_registers(number(rounds)))}
    for cache, size in _CACHES.items():
        memory = np.ones(size // 4, np.float32)
        blocks = len(memory) // (_SUMS * lanes)
        turns = rounds // blocks
        seconds = _best(
            lambda memory=memory, blocks=blocks, turns=turns: library.from_memory(
                ctypes.c_void_p(memory.ctypes.data), number(blocks), number(turns)
            )
        )
        found[f"from {cache}"] = _SUMS * lanes * blocks * turns / seconds
    return found


def _emptied(layer: Layer, attended: int) -> Layer:
    """The same without weights, and with that many rows of queries, keys and values."""
    hidden, inner = layer.query.weight.columns, layer.up.weight.rows
    shapes = dict.fromkeys(("query", "key", "value"), (attended, hidden))
    shapes |= {"out": (hidden, attended), "up": (inner, hidden), "down": (hidden, inner)}
    empty = {name: Packed.pack(np.zeros(shape, np.float32)) for name, shape in shapes.items()}
    return layer._replace(**{name: Affine(matrix, getattr(layer, name).bias) for name, matrix in empty.items()})


def _call(layers: Layers, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    return lambda: layers.run(y.data_ptr(), x=x.data_ptr(), examples=len(x), length=x.shape[1])


def _least(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least seconds of each, called in turns."""
    best = dict.fromkeys(calls, float("inf"))
    with torch.inference_mode():
        for _ in range(rounds + 1):
            for name, call in calls.items():
                start = time.thread_time()
                call()
                best[name] = min(best[name], time.thread_time() - start)
    return best


def _best(call: Callable[[], object], rounds: int = 40) -> float:
    return _least({"": call}, rounds)[""]


def _millions(count: float, what: str) -> str:
    return f"{count / 1e6:.3g} M {what}"
