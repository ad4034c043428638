"""Replaces the pruned layers of a model by sparse ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.runtime._choice import DENSITIES, Choices, sparse_layer
from mvprune.runtime._fusion import fuse
from mvprune.runtime._linear import LINEAR, SparseLinear
from mvprune.runtime._used import warn_without_kernel
from mvprune.runtime.kernel import Stored

Model = TypeVar("Model", bound=nn.Module)


def optimize(
    model: Model,
    *,
    values: Stored = "fp32",
    tokens: int = 128,
    threads: int | None = None,
    backend: Literal["auto", "kernel", "csr"] = "auto",
) -> Model:
    """Replaces, in place, each linear layer that the sparse runtime makes faster. The model is then for inference only.

    Args:
        model: any model with `nn.Linear` or GPT-2's `Conv1D` layers, in fp32 on the CPU.
        values: the data type in which the native kernel stores weights.
        tokens: expected examples × length of a call. Backends are chosen for it; any other number works.
        threads: threads per call; by default as many as torch uses at that time.
        backend: the backend of every layer with at least half zeros. "auto" takes the fastest on this machine for the
            layer's shape and density, `nn.Linear` included; it is measured once and kept in the user's cache.

    Returns:
        The same model.

    Warns:
        NoKernelWarning: once per process, if the native kernel is unavailable; torch then computes the layers.

    Raises:
        ValueError: the model is not in fp32 on the CPU, or was optimized before; or a number is less than 1.
        RuntimeError: the requested backend is unavailable on this machine.
    """
    for name, value in (("tokens", tokens), ("threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    replacement = Replacement(model, values=values, tokens=tokens, threads=threads, backend=backend)
    for names, weight in _linear_weights(model):
        replacement.take(names, weight.detach().numpy())
    return replacement.finish()


class Replacement(Generic[Model]):
    """Replaces layers one by one, as their weights come; the arguments are those of `optimize`."""

    def __init__(
        self,
        model: Model,
        *,
        values: Stored = "fp32",
        tokens: int = 128,
        threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        _check(model)
        self._model, self._values, self._threads, self._backend = model, values, threads, backend
        self._choices = Choices(tokens, threads or torch.get_num_threads(), values)

    def take(self, names: Iterable[str], weight: npt.NDArray[Any]) -> bool:
        """Replaces the layers that have this weight, if they are faster without their zeros.

        Args:
            names: of the weight in the state dict; any tensor may be shown.
            weight: (rows, columns) for `nn.Linear`, (columns, rows) for `Conv1D`; any float dtype.

        Returns:
            Whether it did: nothing uses the dense weight any more.
        """
        paths = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
        layers: list[tuple[str, Any]] = [(path, self._model.get_submodule(path)) for path in paths]
        if not layers or not all(type(layer) in LINEAR for _, layer in layers):
            return False
        made: dict[nn.Module, SparseLinear] = {}  # a layer that is used in several places stays one
        for path, layer in layers:
            if layer not in made:
                matrix = np.ascontiguousarray(weight.T if isinstance(layer, Conv1D) else weight, np.float32)
                backend = self._choose(matrix)
                if backend == "dense":
                    return False
                made[layer] = sparse_layer(backend, matrix, layer.bias, self._values, self._threads)
            self._model.set_submodule(path, made[layer])
        return True

    def finish(self) -> Model:
        """Joins what can be computed at once."""
        self._model.eval().requires_grad_(False)
        if self._backend == "auto":
            warn_without_kernel(self._model)
        fuse(self._model)
        return self._model

    def _choose(self, matrix: npt.NDArray[Any]) -> str:
        density = np.count_nonzero(matrix != 0) / max(matrix.size, 1)
        if self._backend == "auto":
            return self._choices.backend((matrix.shape[0], matrix.shape[1]), density)
        return self._backend if density <= DENSITIES[-1] else "dense"


def _linear_weights(model: nn.Module) -> Iterator[tuple[list[str], Tensor]]:
    """Each weight of a linear layer once, with all its names."""
    groups: dict[int, tuple[list[str], Tensor]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, LINEAR):
            groups.setdefault(id(module.weight), ([], module.weight))[0].append(f"{path}.weight")
    yield from groups.values()


def _check(model: nn.Module) -> None:
    if any(isinstance(module, SparseLinear) for module in model.modules()):
        raise ValueError("model must not be optimized yet, got an optimized model")
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise ValueError(
                f"model must be float32 on the CPU, got {name} in {parameter.dtype} on {parameter.device}; "
                "pass model.float().cpu()"
            )
