"""Replaces the pruned layers of a model by sparse ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Generic, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from mvprune.artifact.packing import Unpacked
from mvprune.artifact.values import Values
from mvprune.runtime._choice import DENSEST, Choices, sparse_layer
from mvprune.runtime._compressed import Compressed
from mvprune.runtime._elements import Elements
from mvprune.runtime._embedding import StoredEmbedding, is_plain
from mvprune.runtime._fusion import fuse
from mvprune.runtime._linear import LINEAR, may_round
from mvprune.runtime._used import warn_without_int8, warn_without_kernel
from mvprune.runtime._vocabulary import speed_up_head
from mvprune.runtime.kernel import Activations, Stored
from mvprune.runtime.masked import FEW, multiplies_few

Model = TypeVar("Model", bound=nn.Module)

_VALUES: tuple[str, ...] = get_args(Stored)
_BACKENDS = ("auto", "kernel", "csr")
_STORED = (Values.FP16, Values.INT8, Values.INT4)  # embeddings that stay as they are: others are fp32 in any case


def optimize(
    model: Model,
    *,
    values: Stored = "fp32",
    activations: Activations = "fp32",
    tokens: int = 128,
    threads: int | None = None,
    backend: Literal["auto", "kernel", "csr"] = "auto",
) -> Model:
    """Replaces, in place, each linear layer that the sparse runtime makes faster. The model is then for inference only.

    Args:
        model: any model with `nn.Linear` or GPT-2's `Conv1D` layers, in fp32 on the CPU.
        values: the data type in which the native kernel stores weights.
        activations: int8: where that is faster on this machine, the kernel rounds the input of a layer to int8, with a
            scale for each token and 512 features, and its weights to int8, with a scale for each row; also of the dense
            layers in a model's blocks. Outputs then differ by more than rounding; sums are exact. It needs a CPU with
            VNNI instructions.
        tokens: expected examples × length of a call. Backends are chosen for it; any other number works.
        threads: threads per call; by default as many as torch uses at that time.
        backend: the backend of every layer with at least half zeros, and of the dense ones with int8 activations.
            "auto" takes the fastest on this machine for the layer's shape, density and (with int8 activations) density
            of quads, `nn.Linear` included; it is measured once and kept in the user's cache.

    Returns:
        The same model.

    Warns:
        NoKernelWarning: once per process, if the native kernel is unavailable; torch then computes the layers.
        Fp32ActivationsWarning: once per process, if no layer uses the requested int8 activations; the warning says why.

    Raises:
        ValueError: the model is not in fp32 on the CPU, or was optimized before; a number is less than 1; there are no
            such values, activations or backend, or the backend does not have the activations.
        RuntimeError: the requested backend is unavailable on this machine.
    """
    for name, value in (("tokens", tokens), ("threads", threads)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    for name, word, known in (("values", values, _VALUES), ("backend", backend, _BACKENDS)):
        if word not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {word!r}")
    replacement = Replacement(
        model, values=values, activations=activations, tokens=tokens, threads=threads, backend=backend
    )
    for names, weight in _linear_weights(model):
        array = weight.detach().numpy()
        replacement.take(names, Unpacked(array.shape, array))
    return replacement.finish()


class Replacement(Generic[Model]):
    """Replaces layers one by one, as their weights come; the arguments are those of `optimize`.

    The layers need no values before that.
    """

    def __init__(
        self,
        model: Model,
        *,
        values: Stored = "fp32",
        activations: Activations = "fp32",
        tokens: int = 128,
        threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        _check(model)
        check_activations(activations, backend != "csr", "backend='auto' or 'kernel'")
        self._model, self._values, self._threads, self._backend = model, values, threads, backend
        self._activations = activations
        conditions = tokens, threads or torch.get_num_threads(), values
        self._choices, self._fp32_choices = Choices(*conditions, activations), Choices(*conditions)
        self._decodes = multiplies_few() and isinstance(model, PreTrainedModel) and model.can_generate()

    def take(self, names: Iterable[str], weight: Unpacked) -> bool:
        """Replaces the layers that have this weight, if they are faster without their zeros, or smaller as stored.

        Args:
            names: of the weight in the state dict; any tensor may be shown.
            weight: (rows, columns) for `nn.Linear`, (columns, rows) for `Conv1D`; of an embedding (rows, columns).

        Returns:
            Whether it did: nothing uses the dense weight any more.

        Raises:
            ArtifactError: the weight has a number that is not allowed.
        """
        paths = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
        layers: list[tuple[str, Any]] = [(path, self._model.get_submodule(path)) for path in paths]
        made: dict[nn.Module, Compressed] = {}  # a layer that is used in several places stays one
        if layers and weight.kind in _STORED and all(is_plain(layer) for _, layer in layers):
            made = dict.fromkeys((layer for _, layer in layers), StoredEmbedding(*weight.rows()))
        elif layers and all(type(layer) in LINEAR for _, layer in layers):
            may = all(may_round(*one) for one in layers)
            made = self._sparse_layers({layer for _, layer in layers}, weight, may, self._writes(paths))
        for path, layer in layers:
            if layer in made:
                self._model.set_submodule(path, made[layer])
        return bool(made)

    def _sparse_layers(
        self, layers: Collection[Any], weight: Unpacked, may_round: bool, writes: bool
    ) -> dict[nn.Module, Compressed]:
        """The replacement of each layer; empty if one is faster dense."""
        rounded = self._activations == "int8" and may_round
        if weight.nonzeros > DENSEST * math.prod(weight.shape) and not rounded:
            return {}
        elements = Elements.at((weight.shape[0], weight.shape[1]), *weight.elements())
        made: dict[nn.Module, Compressed] = {}
        for layer in layers:
            matrix = elements.transposed() if isinstance(layer, Conv1D) else elements
            backend = self._choose(matrix, rounded=rounded)
            if backend == "dense":
                return {}
            few = self._few(backend, matrix) if writes else 0
            made[layer] = sparse_layer(backend, matrix, layer.bias, self._values, self._threads, few)
        return made

    def finish(self) -> Model:
        """Joins what can be computed at once."""
        self._model.eval().requires_grad_(False)
        if self._backend == "auto":
            warn_without_kernel(self._model)
            if self._activations == "int8":
                warn_without_int8(self._model)
        fuse(self._model)
        if self._decodes and self._backend != "csr":
            speed_up_head(self._model, self._threads)
        return self._model

    def _choose(self, matrix: Elements, *, rounded: bool) -> str:
        if self._backend == "auto":
            size = max(1, math.prod(matrix.shape))
            choices = self._choices if rounded else self._fp32_choices
            return choices.backend(matrix.shape, len(matrix.values) / size, matrix.filled_quads())
        return "int8" if rounded else self._backend

    def _writes(self, paths: Iterable[str]) -> bool:
        """Whether calls of few tokens are to be expected of layers: they write text, and do not only read it."""
        config: Any = self._model.config if self._decodes else None
        return self._decodes and (not config.is_encoder_decoder or any("decoder" in path.split(".") for path in paths))

    def _few(self, backend: str, matrix: Elements) -> int:
        """Up to how many tokens a layer has a matrix of its own for them, which decoding needs."""
        if backend == "csr":
            return 0
        if self._backend != "auto":
            return FEW
        density = len(matrix.values) / max(1, math.prod(matrix.shape))
        return self._fp32_choices.few(backend, matrix.shape, density, matrix.filled_quads())


def check_activations(activations: str, possible: bool = True, remedy: str = "") -> None:
    """Checks that there are such activations, and that they are possible here.

    Raises:
        ValueError: they are not.
    """
    if activations not in ("fp32", "int8"):
        raise ValueError(f"activations must be fp32 or int8, got {activations!r}")
    if activations == "int8" and not possible:
        raise ValueError(f"activations must be fp32 without the native kernel, got 'int8'; pass {remedy}")


def _linear_weights(model: nn.Module) -> Iterator[tuple[list[str], Tensor]]:
    """Each weight of a linear layer once, with all its names."""
    groups: dict[int, tuple[list[str], Tensor]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, LINEAR):
            groups.setdefault(id(module.weight), ([], module.weight))[0].append(f"{path}.weight")
    yield from groups.values()


def _check(model: nn.Module) -> None:
    if any(isinstance(module, Compressed) for module in model.modules()):
        raise ValueError("model must not be optimized yet, got an optimized model")
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32 or parameter.device.type not in ("cpu", "meta"):
            raise ValueError(
                f"model must be float32 on the CPU, got {name} in {parameter.dtype} on {parameter.device}; "
                "pass model.float().cpu()"
            )
