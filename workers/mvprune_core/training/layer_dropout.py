"""LayerDrop: random layers of the encoder are left out of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

_STREAM = 0x4C44  # of random numbers, beside that of the batches


@contextmanager
def layers_dropped(layers: Sequence[nn.Module], probability: float, seed: int) -> Iterator[Callable[[int], None]]:
    """A context in which each layer is left out of a training step with a probability, each for itself (LayerDrop, Fan,
    Grave and Joulin 2020, https://arxiv.org/abs/1909.11556, section 3.2).

    A layer that is left out returns its input. It is not computed, so its tensors have no gradients, and the optimizer
    leaves them as they are. In evaluation mode all layers are computed.

    Args:
        layers: of a model; each takes hidden states first and returns hidden states.
        probability: of leaving out a layer, in [0, 1).
        seed: of the run.

    Yields:
        To be called before each training step with its number: draws the layers that it leaves out. They depend only
        on the seed and the number, so that all ranks and a resumed run draw the same.
    """
    out: set[int] = set()

    def draw(step: int) -> None:
        numbers = np.random.default_rng((seed, step, _STREAM)).random(len(layers))
        out.clear()
        out.update(np.flatnonzero(numbers < probability).tolist())

    def forward(
        number: int, layer: Any, own: Callable[..., Tensor], hidden: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor:
        return hidden if layer.training and number in out else own(hidden, *args, **kwargs)

    for number, layer in enumerate(layers):
        layer.forward = partial(forward, number, layer, layer.forward)
    try:
        yield draw
    finally:
        for layer in layers:
            del layer.forward
