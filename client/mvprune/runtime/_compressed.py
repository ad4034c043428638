"""What the sparse runtime's modules share: they are for inference only and have no state dict."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from torch import nn

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

    def _save_to_state_dict(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(REFUSED + "for a state dict, or keep the artifact's folder")

    def _load_from_state_dict(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(REFUSED + "and load the state dict into that one")
