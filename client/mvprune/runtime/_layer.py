"""A whole block of a Transformer, BERT's and its like, in one call of the native kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import activations

from mvprune.artifact.structures import BLOCKS, class_name
from mvprune.runtime import kernel
from mvprune.runtime._linear import KernelLinear, address
from mvprune.runtime.kernel import Activation

ACTIVATIONS: dict[type[nn.Module], Activation] = {
    activations.GELUActivation: "gelu",
    activations.NewGELUActivation: "gelu_tanh",
    activations.GELUTanh: "gelu_tanh",
    nn.ReLU: "relu",
}
_ISAS = ("avx512", "avx2")  # on others torch's attention is as fast or faster, or has not been compared
_LANES = 16  # tokens in a vector, at most
_PRODUCTS = ("query", "key", "value", "out", "up", "down")
_NORMS = ("attention_norm", "output_norm")


class LayerForward:
    """What takes the place of a block's `forward`. Calls out of the ordinary go the block's own way, part by part.

    The block stays: hooks, such as those that record hidden states, look for its class.
    """

    def __init__(self, block: nn.Module, parts: dict[str, Any], activation: Activation) -> None:
        self._block, self._parts, self._activation = block, parts, activation

    def __call__(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """(examples, length, hidden) to the same, for a mask that broadcasts to (examples, heads, length, length)."""
        examples, length, _ = hidden_states.shape
        if (
            kwargs.get("past_key_values") is not None
            or self._parts["attention"].config._attn_implementation != "sdpa"  # "eager": attention weights are wanted
            or not _is_padding(attention_mask)
            or (examples > 1 and _padded(length) > 1.5 * length)
        ):
            return type(self._block).forward(self._block, hidden_states, attention_mask, *args, **kwargs)
        first: KernelLinear = self._parts["query"]
        rows = first.rows_of(hidden_states)
        kept = None if attention_mask is None else attention_mask[:, 0, 0].expand(examples, length).contiguous()
        y = torch.empty_like(rows)
        self._layer().run(
            rows.data_ptr(), address(kept), y.data_ptr(), examples=examples, length=length, threads=first.threads
        )
        return y.view(hidden_states.shape)

    def _layer(self) -> kernel.Layer:
        def affine(name: str) -> kernel.Affine:
            return kernel.Affine(self._parts[name].packed, address(self._parts[name].bias))

        def norm(name: str) -> kernel.Norm:
            part: nn.LayerNorm = self._parts[name]
            return kernel.Norm(address(part.weight), address(part.bias), part.eps)

        return kernel.Layer(
            query=affine("query"),
            key=affine("key"),
            value=affine("value"),
            out=affine("out"),
            up=affine("up"),
            down=affine("down"),
            attention_norm=norm("attention_norm"),
            output_norm=norm("output_norm"),
            activation=self._activation,
            heads=self._parts["query"].out_features // self._parts["attention"].attention_head_size,
        )


def layer_forward(block: nn.Module) -> LayerForward | None:
    """What computes the block at once, or None where it has to go part by part."""
    names = BLOCKS.get(class_name(block))
    if names is None or kernel.isa() not in _ISAS:
        return None
    parts = {part: block.get_submodule(path) for part, path in names._asdict().items()}
    activation = ACTIVATIONS.get(type(parts["activation"]))
    config: Any = parts["attention"].config
    if (
        activation is None
        or getattr(config, "is_decoder", False)
        or not all(isinstance(parts[name], KernelLinear) for name in _PRODUCTS)
        or not all(type(parts[name]) is nn.LayerNorm for name in _NORMS)
    ):
        return None
    return LayerForward(block, parts, activation)


def _padded(length: int) -> int:
    """Tokens that the kernel computes for an example: part by part it need not fill up each one."""
    return -(-length // _LANES) * _LANES


def _is_padding(mask: Tensor | None) -> bool:
    """Whether a mask hides tokens from all heads and queries alike."""
    if mask is None:
        return True
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1:
        return False
    rows = mask.numpy()  # a quarter of the time that torch takes
    return mask.shape[2] == 1 or mask.stride(2) == 0 or bool((rows == rows[:, :, :1]).all())
