"""Which runtime a model uses, and why it is not the requested one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from torch import nn

from mvprune.runtime import kernel
from mvprune.runtime._linear import backends


class NoKernelWarning(RuntimeWarning):
    """The native kernel is unavailable, so a sparse model is slower than it could be."""


@dataclass(frozen=True)
class Used:
    """The runtime of a model.

    Attributes:
        runtime: "sparse" (the native kernel computes at least one layer), "csr" (torch's sparse products compute at
            least one layer, the kernel none) or "dense" (torch computes all layers).
        reason: why it is not the sparse runtime; "" if it is, or if dense was requested.
    """

    runtime: Literal["sparse", "csr", "dense"]
    reason: str


def used(model: nn.Module, asked: Literal["dense", "sparse"] = "sparse") -> Used:
    """The runtime of a model that was loaded for the runtime `asked`."""
    counts = backends(model)
    if asked == "dense":
        return Used("dense", "")
    if "kernel" in counts:
        return Used("sparse", "")
    reason = kernel.load() or "no layer is faster from its non-zeros on this machine"
    return Used("csr" if "csr" in counts else "dense", reason)


def warn_without_kernel(model: nn.Module) -> None:
    """Warns once per process if the native kernel is unavailable: the reason, the replacement and a remedy."""
    if reason := kernel.load():
        counts = backends(model)
        layers = " and ".join(
            f"{counts[backend]} on {name}"
            for backend, name in (("csr", "torch's sparse products"), ("dense", "dense torch"))
            if backend in counts
        )
        _warn(reason, layers or "none")


@lru_cache(maxsize=1)
def _warn(reason: str, layers: str) -> None:
    warnings.warn(f"{reason}. Linear layers run slower: {layers}", NoKernelWarning, stacklevel=4)
