"""Linear layers for inference that compute from the non-zeros of their weight."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.common.blocks import in_block
from mvprune.runtime._compressed import REFUSED, Compressed
from mvprune.runtime._elements import Elements
from mvprune.runtime.kernel import Activation, Packed, SparseMatrix, Stored
from mvprune.runtime.masked import Masked
from mvprune.runtime.quads import for_bytes

LINEAR = (nn.Linear, Conv1D)


class SparseLinear(Compressed):
    """y = x Wᵀ + b with a sparse W: float32 in and out, any leading dimensions, on the CPU, without gradients.

    It can be pickled and copied.

    Attributes:
        weight: shape and dtype without data (some models read the dtype).
        bias: (out_features,), the tensor of the replaced layer.
    """

    backend: ClassVar[str]

    def __init__(self, shape: tuple[int, int], bias: Tensor | None, threads: int | None) -> None:
        super().__init__()
        self.out_features, self.in_features = shape
        self.bias = None if bias is None else bias.detach()
        self.weight = torch.empty(shape, device="meta")
        self._threads = threads
        self.eval()

    @property
    def threads(self) -> int:
        """The requested number of threads, else torch's."""
        return self._threads or torch.get_num_threads()

    def rows_of(self, x: Tensor) -> Tensor:
        """The input as a contiguous matrix, (tokens, in_features).

        Raises:
            RuntimeError: x has another dtype, device or width, or requires a gradient.
        """
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise RuntimeError(
                f"the input of a sparse layer must be float32 on the CPU, got {x.dtype} on {x.device}; "
                "pass inputs.float().cpu()"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(REFUSED + "for gradients, or call this one inside torch.inference_mode()")
        if x.shape[-1] != self.in_features:
            raise RuntimeError(f"the input of a sparse layer must have {self.in_features} features, got {x.shape[-1]}")
        return x.reshape(math.prod(x.shape[:-1]), self.in_features).contiguous()

    def extra_repr(self) -> str:
        """As `nn.Linear` shows itself, and the backend."""
        return f"in_features={self.in_features}, out_features={self.out_features}, backend={self.backend}"


class KernelLinear(SparseLinear):
    """On the native kernel, which can also apply an activation and add a residual.

    Attributes:
        packed: the matrix.
        masked: the same for a call of at most `few` tokens, None if few is 0.
    """

    backend = "kernel"

    def __init__(
        self,
        weight: Elements,
        bias: Tensor | None,
        *,
        values: Stored = "fp32",
        threads: int | None = None,
        few: int = 0,
    ) -> None:
        super().__init__(weight.shape, bias, threads)
        self.packed = self._pack(weight, values)
        self.few = few
        self.masked = self._mask(weight, values) if few else None
        self.nbytes = self.packed.nbytes + (self.masked.nbytes if self.masked else 0)

    def _pack(self, weight: Elements, values: Stored) -> SparseMatrix:
        return Packed.pack(weight, values=values)

    def _mask(self, weight: Elements, values: Stored) -> Masked:
        return Masked.pack(weight.stored_as(values))

    def forward(self, x: Tensor, residual: Tensor | None = None, activation: Activation = "none") -> Tensor:
        """activation(x Wᵀ + b) + residual.

        Args:
            x: (…, in_features).
            residual: (…, out_features).
            activation: which.
        """
        rows = self.rows_of(x)
        y = torch.empty(len(rows), self.out_features)
        added = None if residual is None else residual.reshape(y.shape).contiguous()
        if activation == "none" and self._multiply_few(rows, y):
            y = y if added is None else y.add_(added)
            return y.view(*x.shape[:-1], self.out_features)
        self.packed.linear(
            rows.data_ptr(),
            y.data_ptr(),
            len(rows),
            bias=address(self.bias),
            activation=activation,
            residual=address(added),
            threads=self.threads,
        )
        return y.view(*x.shape[:-1], self.out_features)

    def _multiply_few(self, x: Tensor, y: Tensor) -> bool:
        """Whether it has written y."""
        if self.masked is None or len(x) > self.few:
            return False
        return self.masked.linear(x.data_ptr(), y.data_ptr(), len(x), bias=address(self.bias), threads=self.threads)


class Int8Linear(KernelLinear):
    """On the native kernel, with activations and weights in int8; what `values` says is for other layers."""

    backend = "int8"

    def _pack(self, weight: Elements, values: Stored) -> SparseMatrix:
        return for_bytes(weight)

    def _mask(self, weight: Elements, values: Stored) -> Masked:
        return Masked.pack(weight, "int8")


class CsrLinear(SparseLinear):
    """On torch's CSR product, `W @ xᵀ`: the other way round it is slower than a dense product.

    Raises:
        RuntimeError: this build of torch has no such product.
    """

    backend = "csr"

    def __init__(self, weight: Elements, bias: Tensor | None, *, threads: int | None = None) -> None:
        super().__init__(weight.shape, bias, threads)
        counts = np.bincount(weight.rows, minlength=weight.shape[0])
        starts = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
        parts = (starts, weight.columns.astype(np.int32), weight.values)  # int32: what MKL's product takes
        self.nbytes = sum(part.nbytes for part in parts)
        self._parts = [torch.from_numpy(part) for part in parts]
        self._matrix = self._csr()

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b for x of (…, in_features)."""
        y = (self._matrix @ self.rows_of(x).t()).t()
        y = y.contiguous() if self.bias is None else torch.add(y, self.bias).contiguous()
        return y.view(*x.shape[:-1], self.out_features)

    def __getstate__(self) -> dict[str, Any]:  # torch cannot copy a CSR tensor
        return {name: value for name, value in self.__dict__.items() if name != "_matrix"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._matrix = self._csr()

    def _csr(self) -> Tensor:
        starts, columns, values = self._parts
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(starts, columns, values, size=self.weight.shape, check_invariants=False)


def may_round(path: str, layer: nn.Module) -> bool:
    """Whether activations may be int8 in a layer with this name: a head has little to compute, and rounding it costs
    most."""
    return type(layer) in LINEAR and in_block(path)


def address(tensor: Tensor | None) -> int:
    """Of the data, as the kernel takes it: 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()


def backends(model: nn.Module) -> dict[str, int]:
    """How many linear layers run on which backend: kernel, int8 (the kernel with int8 activations), csr, dense."""
    counts: Counter[str] = Counter()
    for module in model.modules():
        if isinstance(module, SparseLinear):
            counts[module.backend] += 1
        elif isinstance(module, LINEAR):
            counts["dense"] += 1
    return dict(counts)
