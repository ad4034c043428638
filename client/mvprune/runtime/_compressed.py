"""The base of the sparse runtime's modules: they are for inference only and have no state dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn

REFUSED = "a sparse model is for inference only; load the artifact with mvprune.load(folder) "


class Compressed(nn.Module):
    """A module that holds a weight in fewer bytes. It is immutable, so several threads may call it.

    Attributes:
        nbytes: bytes of the weight.
    """

    nbytes: int

    def train(self, mode: bool = True) -> Self:
        """Evaluation mode only.

        Raises:
            RuntimeError: `mode` is True.
        """
        if mode:
            raise RuntimeError(REFUSED + "for training")
        return super().train(False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The hook of `to`, `half` and their like.

        Raises:
            RuntimeError: the result would not be float32 on the CPU.
        """
        made = fn(torch.empty(1))
        if made.dtype != torch.float32 or made.device.type != "cpu":
            found = f"{made.dtype} on {made.device}"
            raise RuntimeError(
                f"a sparse model must be float32 on the CPU, got {found}; load the artifact again, with "
                "mvprune.load(folder) for other dtypes and devices"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _save_to_state_dict(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(REFUSED + "for a state dict, or keep the artifact's folder")

    def _load_from_state_dict(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(REFUSED + "and load the state dict into that one")
