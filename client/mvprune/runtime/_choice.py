"""Which way of computing a sparse layer is the fastest here: measured once on each machine, kept in a file."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from mvprune.common.files import replace_text
from mvprune.runtime import kernel
from mvprune.runtime._elements import Elements
from mvprune.runtime._linear import CsrLinear, Int8Linear, KernelLinear, SparseLinear
from mvprune.runtime.kernel import Activations, Stored

DENSITIES = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""The measured densities. A layer takes what is fastest at the next larger one; above the last it is dense."""

_SECONDS = 0.05  # one measurement takes at least as long
_SURE_SECONDS = 0.5  # the same for one that would leave a layer dense
_ROUNDS = 5
_CLOSE = 1.5  # times as slow as the fastest


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
        self._backends = ["csr"] if kernel.load() else ["kernel"]
        if activations == "int8" and kernel.multiplies_bytes():
            self._backends.insert(0, "int8")
        self._path = _cache_folder() / "runtime.json"
        isa = f"{kernel.isa()} {kernel.digest()[:16]}" if kernel.isa() else "no kernel"
        versions = f"mvprune {version('mvprune')}, torch {torch.__version__}"
        self._machine = f"{_processor()}, {isa}, {versions}, {threads} threads, {values}"
        self._machine += ", int8 activations" * ("int8" in self._backends)
        self._times: dict[str, dict[str, float]] = _read(self._path).get(self._machine, {})

    def backend(self, shape: tuple[int, int], density: float) -> str:
        """For a weight of (rows, columns) with that fraction of non-zeros."""
        place = bisect_left(DENSITIES, density)
        if place == len(DENSITIES) or not all(shape):
            return "dense"
        times = self.times(shape, DENSITIES[place])
        return min(times, key=times.__getitem__)

    def times(self, shape: tuple[int, int], density: float) -> dict[str, float]:
        """Seconds of one call by backend; one that does not work here is absent."""
        name = f"{shape[0]}x{shape[1]} {density} {self._tokens} {self._purpose}".rstrip()
        if name not in self._times:
            self._times[name] = self._measure(shape, density)
            self._keep()
        return self._times[name]

    def _measure(self, shape: tuple[int, int], density: float) -> dict[str, float]:
        source = np.random.default_rng(0)
        weight = source.standard_normal(shape, np.float32)
        weight *= source.random(shape, np.float32) < density
        x = torch.from_numpy(source.standard_normal((self._tokens, shape[1]), np.float32))
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with torch.no_grad():
                rivals = self._rivals(torch.from_numpy(weight), torch.zeros(shape[0]))
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

    def _rivals(self, weight: Tensor, bias: Tensor) -> dict[str, Callable[[Tensor], object]]:
        rivals: dict[str, Callable[[Tensor], object]] = {"dense": lambda x: linear(x, weight, bias)}
        for backend in self._backends:
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
    backend: str, weight: Elements, bias: Tensor | None, values: Stored, threads: int | None
) -> SparseLinear:
    """A layer on that backend.

    Raises:
        RuntimeError: it does not work here; the text says why.
    """
    if backend == "csr":
        return CsrLinear(weight, bias, threads=threads)
    if absent := kernel.load():
        raise RuntimeError(absent)
    layer = Int8Linear if backend == "int8" else KernelLinear
    return layer(weight, bias, values=values, threads=threads)


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
