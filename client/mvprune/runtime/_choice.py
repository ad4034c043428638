"""Which way of computing a sparse layer is the fastest here: measured once on each machine, kept in a file."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import linear

from mvprune.common.files import replace_text
from mvprune.runtime import kernel
from mvprune.runtime._elements import Elements
from mvprune.runtime._linear import CsrLinear, Int8Linear, KernelLinear, SparseLinear
from mvprune.runtime.kernel import Activations, Stored

DENSEST = 0.5
"""The fraction of non-zeros above which single weights are never faster than a dense product."""

_STEPS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, DENSEST, 0.65, 0.8, 1.0)

_SECONDS = 0.05  # one measurement takes at least as long
_SURE_SECONDS = 0.5  # the same for one that would leave a layer dense
_ROUNDS = 5
_CLOSE = 1.5  # times as slow as the fastest
_FEW = (1, 2, 4, 8, 16, 32)  # tokens that are tried
# What a layer gains where its neighbours use int8 too: panels of more tokens, and attention in int16. The same where
# they have matrices for few tokens too: the step of a decoder is one call.
_ALIKE = 1.25


class Choices:
    """The fastest backend for a layer on this machine: "kernel", "int8", "csr" or "dense".

    What was measured is kept in the user's cache; a file there that cannot be read or written is as good as none.

    Args:
        tokens: examples × length that a call is expected to have.
        threads: of a call.
        values: as the kernel stores the weights.
        activations: int8: the kernel may also round a layer's input to int8, if it has an instruction for that.
    """

    _purpose: ClassVar[str] = ""  # where it is not inference: part of what is kept

    def __init__(self, tokens: int, threads: int, values: Stored, activations: Activations = "fp32") -> None:
        self._tokens, self._threads, self._values = tokens, threads, values
        # CSR products are several times slower than the kernel. One of them, taken because a busy machine delayed the
        # kernel while it was timed, would split the pass that is one call.
        self._single = "csr" if kernel.load() else "kernel"
        self._int8 = activations == "int8" and kernel.multiplies_bytes()
        self._path = _cache_folder() / "runtime.json"
        isa = f"{kernel.isa()} {kernel.digest()[:16]}" if kernel.isa() else "no kernel"
        versions = f"mvprune {version('mvprune')}, torch {torch.__version__}"
        self._machine = f"{_processor()}, {isa}, {versions}, {threads} threads, {values}"
        self._machine += ", int8 activations" * self._int8
        self._times: dict[str, dict[str, float]] = _read(self._path).get(self._machine, {})

    def backend(self, shape: tuple[int, int], density: float, quads: float = 1.0) -> str:
        """The fastest for a weight.

        Args:
            shape: (rows, columns).
            density: the fraction of its elements that are not zero. A step is measured; a weight takes the next larger.
            quads: the fraction of its quads that are not all zero, see `quads.Quads`: with int8 activations they count.
        """
        if not all(shape) or (density > DENSEST and not self._int8):
            return "dense"
        times = self.times(shape, _step(density), _step(quads) if self._int8 else None)
        return min(times, key=lambda name: times[name] / (_ALIKE if name == "int8" else 1))

    def times(self, shape: tuple[int, int], density: float, quads: float | None = None) -> dict[str, float]:
        """Seconds of one call by backend; one that does not work here is absent."""
        parts = (f"{shape[0]}x{shape[1]}", density, quads, self._tokens, self._purpose)
        name = " ".join(str(part) for part in parts if part not in (None, ""))
        if name not in self._times:
            self._times[name] = self._measure(shape, density, quads)
            self._keep()
        return self._times[name]

    def few(self, backend: str, shape: tuple[int, int], density: float, quads: float) -> int:
        """Up to how many tokens of a call the matrix for few (`masked.Masked`) is faster than the backend's own.

        Args:
            backend: int8 or kernel.
            shape, density, quads: as in `backend`.
        """
        name = f"{shape[0]}x{shape[1]} {_step(density)} {_step(quads)} few, {backend}"
        if name not in self._times:
            self._times[name] = self._measure_few(backend, shape, _step(density), _step(quads))
            self._keep()
        times = self._times[name]
        won = takewhile(lambda tokens: times[f"few {tokens}"] < _ALIKE * times[f"many {tokens}"], _FEW)
        return max(won, default=0)

    def _measure_few(self, backend: str, shape: tuple[int, int], density: float, quads: float) -> dict[str, float]:
        """Seconds of a call of so many tokens with either matrix."""
        source = np.random.default_rng(0)
        weight = source.standard_normal(shape, np.float32) * _kept(source, shape, density, quads)
        few = sparse_layer(backend, Elements.of(weight), None, self._values, self._threads, few=_FEW[-1])
        many: Any = copy(few)
        many.few = 0
        times: dict[str, float] = {}
        with torch.no_grad():
            for tokens in _FEW:
                x = torch.from_numpy(source.standard_normal((tokens, shape[1]), np.float32))
                calls = {f"few {tokens}": partial(few, x), f"many {tokens}": partial(many, x)}
                times |= fastest(calls, _SECONDS / len(_FEW))
        return times

    def _measure(self, shape: tuple[int, int], density: float, quads: float | None) -> dict[str, float]:
        source = np.random.default_rng(0)
        weight = source.standard_normal(shape, np.float32)
        weight *= _kept(source, shape, density, quads)
        x = torch.from_numpy(source.standard_normal((self._tokens, shape[1]), np.float32))
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with torch.no_grad():
                rivals = self._rivals(torch.from_numpy(weight), torch.zeros(shape[0]), density)
                calls = {name: partial(rival, x) for name, rival in rivals.items()}
                times = fastest(calls, _SECONDS)
                if times["dense"] == min(times.values()):
                    # A busy machine delays threads that wait for each other, and a layer left dense costs the most.
                    return fastest(calls, _SURE_SECONDS)
                # A call after a slow one starts from cold caches: close rivals are compared with each other only.
                close = {name: calls[name] for name in calls if times[name] < _CLOSE * min(times.values())}
                return times | (fastest(close, _SECONDS) if len(close) > 1 else {})
        finally:
            torch.set_num_threads(before)

    def _rivals(self, weight: Tensor, bias: Tensor, density: float) -> dict[str, Callable[[Tensor], object]]:
        rivals: dict[str, Callable[[Tensor], object]] = {"dense": lambda x: linear(x, weight, bias)}
        for backend in ["int8"] * self._int8 + [self._single] * (density <= DENSEST):
            try:
                layer = sparse_layer(backend, Elements.of(weight.numpy()), bias, self._values, self._threads)
                layer(torch.zeros(1, weight.shape[1]))
                rivals[backend] = layer
            except (RuntimeError, NotImplementedError):  # torch was built without CSR products
                continue
        return rivals

    def _keep(self) -> None:
        """Adds what is known now to the file; of two processes that write at once the last one wins."""
        try:
            content = _read(self._path)
            content[self._machine] = content.get(self._machine, {}) | self._times
            replace_text(self._path, json.dumps(content, indent=1, sort_keys=True))
        except OSError:
            return  # measured again next time


def sparse_layer(
    backend: str, weight: Elements, bias: Tensor | None, values: Stored, threads: int | None, few: int = 0
) -> SparseLinear:
    """A layer on that backend; of the kernel's, calls of up to `few` tokens have a matrix of their own.

    Raises:
        RuntimeError: it does not work here; the text says why.
    """
    if backend == "csr":
        return CsrLinear(weight, bias, threads=threads)
    if absent := kernel.load():
        raise RuntimeError(absent)
    layer = Int8Linear if backend == "int8" else KernelLinear
    return layer(weight, bias, values=values, threads=threads, few=few)


def fastest(rivals: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The least seconds a call of each takes, called in turns: what else the machine does disturbs all of them alike.

    Args:
        rivals: by name.
        seconds: for how long in all, at least; five rounds are made in any case.
    """
    best = dict.fromkeys(rivals, float("inf"))
    turn, end = 0, time.perf_counter() + seconds
    while turn < _ROUNDS or time.perf_counter() < end:
        turn += 1
        for name, rival in rivals.items():
            start = time.perf_counter()
            rival()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _step(share: float) -> float:
    return _STEPS[bisect_left(_STEPS, min(share, _STEPS[-1]))]


def _kept(
    source: np.random.Generator, shape: tuple[int, int], density: float, quads: float | None
) -> npt.NDArray[np.bool_]:
    """A random mask with that fraction of elements; of quads too, each of which then has at least one."""
    if quads is None:
        return source.random(shape, np.float32) < density
    grouped = (shape[0], -(-shape[1] // 4), 4)
    first = source.integers(4, size=(*grouped[:2], 1)) == np.arange(4)
    others = source.random(grouped, np.float32) < (4 * density / quads - 1) / 3
    kept: npt.NDArray[np.bool_] = (first | others) & (source.random((*grouped[:2], 1), np.float32) < quads)
    return kept.reshape(shape[0], -1)[:, : shape[1]]


def _cache_folder() -> Path:
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home, as in containers
        cache = tempfile.gettempdir()
    return Path(cache) / "mvprune"


def _read(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    known = content if isinstance(content, dict) else {}
    return {machine: times for machine, times in known.items() if isinstance(times, dict)}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
