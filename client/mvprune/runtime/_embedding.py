"""Embeddings that stay as an artifact stores them: the rows of a call's tokens are converted in the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mvprune.artifact.header import GROUP
from mvprune.runtime import kernel
from mvprune.runtime._compressed import Compressed
from mvprune.runtime._nibbles import joined, separated
from mvprune.runtime.kernel import NO_ROW
from mvprune.runtime.layers import Embedding, Numbers, Table


class StoredEmbedding(Compressed):
    """Looks up rows of fp16, int8 or int4 numbers: the same float32 as from the dense matrix.

    Args:
        numbers: (rows, columns), fp16, or int8, which int4 numbers are given in too.
        scales: of int8, (rows,), or of int4, (rows, groups of 64 columns).
    """

    def __init__(self, numbers: npt.NDArray[Any], scales: npt.NDArray[np.float32] | None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = numbers.shape
        whole: Any = numbers.dtype.name
        self._kind: Numbers = "int4" if scales is not None and scales.ndim > 1 else whole
        self.numbers = joined(numbers) if self._kind == "int4" else np.ascontiguousarray(numbers)
        self.scales = None if scales is None else np.ascontiguousarray(scales)
        self.nbytes = self.numbers.nbytes + (0 if scales is None else scales.nbytes)
        self.eval()

    @property
    def weight(self) -> Tensor:
        """The dense matrix, (rows, columns), made anew: some models read it in place of a call."""
        return self._rows(torch.arange(self.num_embeddings))

    def forward(self, ids: Tensor) -> Tensor:
        """Indices of any shape to (…, columns).

        Raises:
            IndexError: there is no such row.
        """
        places = ids.detach().to("cpu", torch.int64).contiguous()
        return self._rows(places).view(*ids.shape, self.embedding_dim)

    def table(self) -> Table:
        """As the kernel takes it."""
        scales = 0 if self.scales is None else self.scales.ctypes.data
        return Table(self.num_embeddings, self.numbers.ctypes.data, scales, self._kind)

    def extra_repr(self) -> str:
        """As `nn.Embedding` shows itself, and the dtype."""
        return f"{self.num_embeddings}, {self.embedding_dim}, dtype={self._kind}"

    def _rows(self, places: Tensor) -> Tensor:
        if kernel.load():
            return self._converted(places.view(-1).numpy())
        y = torch.empty(places.numel(), self.embedding_dim)
        Embedding([self.table()], self.embedding_dim).run([places.data_ptr()], y.data_ptr(), places.numel())
        return y

    def _converted(self, places: npt.NDArray[np.int64]) -> Tensor:
        """The same without the kernel."""
        if places.size and (places.min() < 0 or places.max() >= self.num_embeddings):
            raise IndexError(NO_ROW)
        numbers = self.numbers[places]
        if self._kind == "int4":
            numbers = separated(numbers, self.embedding_dim)
        found = numbers.astype(np.float32)
        if self.scales is not None:
            scales = self.scales[places].reshape(len(places), -1)
            found *= np.repeat(scales, GROUP, axis=1)[:, : self.embedding_dim] if self._kind == "int4" else scales
        return torch.from_numpy(found)


def table_of(module: StoredEmbedding | nn.Embedding) -> Table:
    """As the kernel takes it."""
    if isinstance(module, StoredEmbedding):
        return module.table()
    return Table(module.num_embeddings, module.weight.data_ptr(), 0, "float32")


def is_plain(module: nn.Module) -> bool:
    """Whether a module does nothing but look up rows."""
    return type(module) is nn.Embedding and module.max_norm is None
