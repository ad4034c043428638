"""Sparse inference on the CPU: a pruned model that is faster, not only smaller.

    model = mvprune.load(folder, runtime="sparse")     # an artifact
    model = optimize(model)                            # or any pruned transformers model
    print(measure(folder).ratio)                       # how much faster than dense on this machine
    print(measure(folder).rivals[0].ratio)             # … and than the unpruned model in torch's dynamic int8

docs/runtime.md explains how it works and when to use it. Needs ``mvprune[runtime]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mvprune.artifact.errors import needs

if TYPE_CHECKING:
    from mvprune.runtime._linear import backends
    from mvprune.runtime._load import load
    from mvprune.runtime._measure import Latency, measure, model_bytes
    from mvprune.runtime._optimize import optimize
    from mvprune.runtime._rivals import RivalLatency
    from mvprune.runtime._used import Fp32ActivationsWarning, NoKernelWarning, Used, used

__all__ = [
    "Fp32ActivationsWarning",
    "Latency",
    "NoKernelWarning",
    "RivalLatency",
    "Used",
    "backends",
    "load",
    "measure",
    "model_bytes",
    "optimize",
    "used",
]

_HOMES = {
    "Fp32ActivationsWarning": "mvprune.runtime._used",
    "Latency": "mvprune.runtime._measure",
    "NoKernelWarning": "mvprune.runtime._used",
    "RivalLatency": "mvprune.runtime._rivals",
    "Used": "mvprune.runtime._used",
    "backends": "mvprune.runtime._linear",
    "load": "mvprune.runtime._load",
    "measure": "mvprune.runtime._measure",
    "model_bytes": "mvprune.runtime._measure",
    "optimize": "mvprune.runtime._optimize",
    "used": "mvprune.runtime._used",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs(name, "runtime"):
        return getattr(import_module(_HOMES[name]), name)
