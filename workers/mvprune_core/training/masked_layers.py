"""Layers that compute with W' = M ⊙ W, which exists for only one layer at a time.

While masks apply, a pruned layer's `weight` is W' for all code that reads it, `get_parameter` included, and the
parameter of that name in `named_parameters` is W. What is written into W' is lost. The forward pass of a layer forms
W'. Autograd saves no W' for the backward pass: W' is formed again there, from W and M, for the gradient of the layer's
input. The gradient of W' becomes that of the parameter; `Masks.backward` splits it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from mvprune_core.pruning.matrices import Matrix
from mvprune_core.pruning.packed_masks import masked

_PLAIN = "_plain_kind"


class MaskedLayers:
    """The layers that have a pruned weight, all of those that share one.

    Their classes are replaced by such that mask the weight, as `torch.nn.utils.parametrize` does, but parameters keep
    their names.

    Args:
        model: changed in place.
        matrices: the pruned matrices.
    """

    def __init__(self, model: nn.Module, matrices: Sequence[Matrix]) -> None:
        of_weight = {matrix.weight: matrix for matrix in matrices}
        self._owners = [
            _Owner(module, name, of_weight[weight])
            for module in model.modules()
            for name, weight in module._parameters.items()
            if weight is not None and weight in of_weight
        ]
        self.form()

    @property
    def owners(self) -> list[tuple[nn.Module, Matrix]]:
        """The layers, each with its matrix."""
        return [(layer, matrix) for layer, _, matrix in self._owners]

    def form(self) -> None:
        """Lets the layers form W' from W, which is the model's parameter."""
        for layer, name, matrix in self._owners:
            matrix.written = None
            layer._parameters[name] = matrix.weight
            layer.__dict__[_matrix_of(name)] = matrix
            layer.__class__ = _masking(_plain(layer), name)  # type: ignore[arg-type]  # classes can be hashed

    def write(self) -> None:
        """Makes the model a plain one whose parameters are W'. W stays as it is."""
        for layer, name, matrix in self._owners:
            layer.__class__ = _plain(layer)
            layer.__dict__.pop(_matrix_of(name), None)
            if matrix.written is None:
                matrix.written = nn.Parameter(matrix.masked.detach().clone(), matrix.weight.requires_grad)
            layer._parameters[name] = matrix.written


class _Owner(NamedTuple):
    layer: nn.Module
    name: str  # of the parameter
    matrix: Matrix


class _Masked(torch.autograd.Function):
    """W ⊙ M in some dtype. Its gradient is handed to W as it is."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = weight.dtype
        return masked(weight, mask, dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.to(ctx.dtype), None, None


class _Formed:
    """W' in the forward pass of one layer, in the dtype in which autocast computes.

    Autograd saves W' or a view of it as the view's place, and anything else as it is.
    """

    def __init__(self, weight: Tensor, mask: Tensor) -> None:
        device = weight.device.type
        lower = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else weight.dtype
        self._terms = weight.detach(), mask, dtype
        self._address = 0

    def form(self, weight: Tensor) -> Tensor:
        formed: Tensor = _Masked.apply(weight, *self._terms[1:])  # type: ignore[no-untyped-call]
        self._address = formed.untyped_storage().data_ptr()  # of no other tensor, as long as the forward pass runs
        return formed

    def pack(self, tensor: Tensor) -> Any:
        if tensor.untyped_storage().data_ptr() == self._address:
            return tensor.size(), tensor.stride(), tensor.storage_offset()
        return tensor.detach()  # an output that held itself would never be freed

    def unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        weight, mask, dtype = self._terms
        return masked(weight, mask, dtype).as_strided(*packed)


@functools.cache
def _masking(kind: type[nn.Module], name: str) -> type[nn.Module]:
    """A class of layers like `kind`, whose parameter with this name is masked wherever it is read."""
    matrix_of, formed_of = _matrix_of(name), f"_formed_{name}"

    def read(layer: nn.Module) -> Tensor | None:
        weight, matrix = layer._parameters[name], layer.__dict__[matrix_of]
        if weight is None or matrix.applied is None:
            return weight
        formed: Tensor | None = layer.__dict__.get(formed_of)  # by the forward pass that runs
        if formed is None:
            formed = _Masked.apply(weight, matrix.applied, weight.dtype)  # type: ignore[no-untyped-call]
        if not torch.compiler.is_compiling():
            formed._is_param = True  # `get_parameter` asks for it
        return formed

    def forward(layer: Any, *args: Any, **kwargs: Any) -> Any:
        weight, mask = layer._parameters[name], layer.__dict__[matrix_of].applied
        if mask is None or torch.compiler.is_compiling():  # the compiler chooses what the backward pass computes again
            return kind.forward(layer, *args, **kwargs)
        formed = _Formed(weight, mask)
        layer.__dict__[formed_of] = formed.form(weight)
        try:
            with saved_tensors_hooks(formed.pack, formed.unpack):
                return kind.forward(layer, *args, **kwargs)
        finally:
            del layer.__dict__[formed_of]

    return type(kind.__name__, (kind,), {name: property(read), "forward": forward, _PLAIN: kind})


def _plain(layer: nn.Module) -> type[nn.Module]:
    kind: type[nn.Module] = getattr(type(layer), _PLAIN, type(layer))
    return kind


def _matrix_of(name: str) -> str:
    return f"_matrix_of_{name}"
