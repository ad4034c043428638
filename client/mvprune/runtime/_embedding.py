"""Embeddings that stay as an artifact stores them: the rows of a call's tokens are converted in the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mvprune.runtime._compressed import Compressed


class StoredEmbedding(Compressed):
    """Looks up rows of fp16 numbers, or of int8 numbers with a scale each: the same float32 as from the dense matrix.

    Args:
        numbers: (rows, columns), fp16 or int8.
        scales: (rows,), for int8.
    """

    def __init__(self, numbers: npt.NDArray[Any], scales: npt.NDArray[np.float32] | None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = numbers.shape
        self.numbers, self.scales = numbers, scales
        self.nbytes = numbers.nbytes + (0 if scales is None else scales.nbytes)
        self.eval()

    @property
    def weight(self) -> Tensor:
        """The dense matrix, (rows, columns), made anew: some models read it in place of a call."""
        return self._rows(np.arange(self.num_embeddings))

    def forward(self, ids: Tensor) -> Tensor:
        """Indices of any shape to (…, columns).

        Raises:
            IndexError: there is no such row.
        """
        places = ids.detach().cpu().numpy()
        if places.size and (places.min() < 0 or places.max() >= self.num_embeddings):
            wrong = places.min() if places.min() < 0 else places.max()
            raise IndexError(f"indices of an embedding must be from 0 to {self.num_embeddings - 1}, got {wrong}")
        return self._rows(places.reshape(-1)).view(*ids.shape, self.embedding_dim)

    def extra_repr(self) -> str:
        """As `nn.Embedding` shows itself, and the dtype."""
        return f"{self.num_embeddings}, {self.embedding_dim}, dtype={self.numbers.dtype}"

    def _rows(self, places: npt.NDArray[Any]) -> Tensor:
        found = self.numbers[places].astype(np.float32)
        if self.scales is not None:
            found *= self.scales[places, None]
        return torch.from_numpy(found)


def is_plain(module: nn.Module) -> bool:
    """Whether a module does nothing but look up rows."""
    return type(module) is nn.Embedding and module.max_norm is None
