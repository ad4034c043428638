"""The operations of a model's forward pass, counted while it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers.pytorch_utils import Conv1D

from mvprune_core.tasks.batching import DECODER_IDS, DECODER_MASK

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_DECODER = (DECODER_IDS, DECODER_MASK)


def count_flops(model: nn.Module, batch: Mapping[str, Tensor], pruned: Collection[str]) -> tuple[int, int]:
    """Operations of a forward pass, dense and without those of pruned weights; 2 for each multiplication with addition.

    Matrix products and convolutions count, those of the attention scores included; embedding look-ups, norms and
    activations do not, as in `torch.utils.flop_counter`. A pruned matrix counts 2 · its non-zeros for each token.

    Args:
        model: a plain model whose masks are applied.
        batch: its inputs, without labels.
        pruned: names of its pruned weights.
    """
    parameters = dict(model.named_parameters())
    zeros = {id(parameters[name]): int((parameters[name] == 0).sum()) for name in pruned}
    skipped = 0

    def skip(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal skipped
        skipped += 2 * zeros[id(layer.weight)] * (output.numel() // output.shape[-1])

    layers = [one for one in model.modules() if isinstance(one, nn.Linear | Conv1D) and id(one.weight) in zeros]
    hooks = [layer.register_forward_hook(skip) for layer in layers]
    # The counter follows gradients of what modules receive, and fails on a parameter, as DeBERTa's layers do.
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.eval()
    counter = FlopCounterMode(display=False)
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        # Other kernels of the attention are one operation, which the counter does not know on every device.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            model(**batch)
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
        for hook in hooks:
            hook.remove()
    dense = counter.get_total_flops()
    return dense, dense - skipped


def one_input(batch: Mapping[str, Tensor], tokens: int) -> dict[str, Tensor]:
    """The inputs of one example, shape (1, tokens), made as long as asked by repeating its second token. What a decoder
    reads beside them stays as it is.

    Args:
        batch: a batch of one example without padding.
        tokens: number of tokens, at least that of the example.
    """
    longer = {name: _longer(batch[name], tokens) for name in _INPUTS if name in batch}
    return longer | {name: batch[name] for name in _DECODER if name in batch}


def _longer(row: Tensor, tokens: int) -> Tensor:
    first, rest = row[:, :1], row[:, 1:]
    return torch.cat([first, rest[:, :1].expand(-1, tokens - row.shape[1]), rest], dim=1)
