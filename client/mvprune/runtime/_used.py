"""Which runtime a model uses, and why it is not the requested one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from torch import nn

from mvprune.runtime import kernel
from mvprune.runtime._linear import backends
from mvprune.runtime.kernel import Activations


class NoKernelWarning(RuntimeWarning):
    """The native kernel is unavailable, so a sparse model is slower than it could be."""


class Fp32ActivationsWarning(RuntimeWarning):
    """No layer of a sparse model uses the requested int8 activations."""


@dataclass(frozen=True)
class Used:
    """The runtime of a model.

    Attributes:
        runtime: "sparse" (the native kernel computes at least one layer), "csr" (torch's sparse products compute at
            least one layer, the kernel none) or "dense" (torch computes all layers).
        reason: why it is not the sparse runtime; "" if it is, or if dense was requested.
        activations: "int8" if the kernel computes at least one layer on int8 activations.
        activations_reason: why no layer does; "" if one does, or if fp32 was requested.
    """

    runtime: Literal["sparse", "csr", "dense"]
    reason: str
    activations: Activations = "fp32"
    activations_reason: str = ""


def used(model: nn.Module, asked: Literal["dense", "sparse"] = "sparse", activations: Activations = "fp32") -> Used:
    """The runtime of a model that was loaded for the runtime `asked` and these activations."""
    counts = backends(model)
    if asked == "dense":
        return Used("dense", "")
    if "int8" in counts:
        return Used("sparse", "", "int8")
    without_int8 = _reason_for_fp32() if activations == "int8" else ""
    if "kernel" in counts:
        return Used("sparse", "", activations_reason=without_int8)
    reason = kernel.load() or "no layer is faster from its non-zeros on this machine"
    return Used("csr" if "csr" in counts else "dense", reason, activations_reason=without_int8)


def _reason_for_fp32() -> str:
    if absent := kernel.load():
        return absent
    if not kernel.multiplies_bytes():
        return f"the instruction set in use, {kernel.isa()}, has no products of bytes here (VNNI)"
    return "no layer is faster with int8 activations on this machine"


def warn_without_kernel(model: nn.Module) -> None:
    """Warns once per process if the native kernel is unavailable: the reason, the replacement and a remedy."""
    if reason := kernel.load():
        counts = backends(model)
        layers = " and ".join(
            f"{counts[backend]} on {name}"
            for backend, name in (("csr", "torch's sparse products"), ("dense", "dense torch"))
            if backend in counts
        )
        _warn(f"{reason}. Linear layers run slower: {layers or 'none'}", NoKernelWarning)


def warn_without_int8(model: nn.Module) -> None:
    """Warns once per process if no layer uses int8 activations, which were requested: the reason."""
    if reason := used(model, activations="int8").activations_reason:
        _warn(f"activations stay fp32: {reason}", Fp32ActivationsWarning)


@lru_cache
def _warn(text: str, kind: type[Warning]) -> None:
    warnings.warn(text, kind, stacklevel=4)
