"""A whole block of a Transformer, BERT's and its like, in one call of the native kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from transformers import activations

from mvprune.artifact.structures import class_name
from mvprune.runtime import kernel, layers
from mvprune.runtime._linear import Int8Linear, KernelLinear, address
from mvprune.runtime.kernel import Activation
from mvprune.spec.structures import BLOCKS

ACTIVATIONS: dict[type[nn.Module], Activation] = {
    activations.GELUActivation: "gelu",
    activations.NewGELUActivation: "gelu_tanh",
    activations.GELUTanh: "gelu_tanh",
    nn.ReLU: "relu",
}
_ISAS = ("avx512", "avx2")  # on others torch's attention is as fast or faster, or has not been compared
_LANES = 16  # tokens in a vector, at most
_PRODUCTS = ("query", "key", "value", "out", "up", "down")
CACHES = ("cache", "past_key_values")  # names of the cache of keys and values: since transformers 5.24, and before
_NORMS = ("attention_norm", "output_norm")


Made = TypeVar("Made")


class OneCall(ABC, Generic[Made]):
    """A forward pass that is one call of the kernel."""

    _made: tuple[tuple[int, ...], Made] | None = None

    @abstractmethod
    def tensors(self) -> Iterator[Tensor]:
        """All that the kernel reads by its address."""

    @abstractmethod
    def make(self) -> Made:
        """The kernel's description of the block, with its present addresses."""

    def native(self) -> Made:
        """The same, made anew only where a tensor was replaced, as `Module.to` does.

        Raises:
            RuntimeError: a tensor is not float32 on the CPU.
        """
        tensors = list(self.tensors())
        places = tuple(tensor.data_ptr() for tensor in tensors)
        made = self._made
        if made is None or made[0] != places:
            for tensor in tensors:
                if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
                    found = f"{tensor.dtype} on {tensor.device}"
                    raise RuntimeError(f"the parameters of a sparse layer must be float32 on the CPU, got {found}")
            made = self._made = places, self.make()
        return made[1]

    def __getstate__(self) -> dict[str, Any]:  # a copy has other addresses
        return {name: value for name, value in self.__dict__.items() if name not in ("_made", "_held")}


class LayerForward(OneCall[layers.Layers]):
    """The replacement of a block's `forward`. Calls out of the ordinary go the block's own way, part by part.

    The block stays: hooks, such as those that record hidden states, look for its class.
    """

    _held: list[tuple[dict[str, Any], str]] | None = None  # where the tensors lie; modules look them up slowly

    def __init__(self, block: nn.Module, parts: dict[str, Any], activation: Activation) -> None:
        self._block, self._parts, self._activation = block, parts, activation

    def __call__(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """(examples, length, hidden) to the same, for a mask that broadcasts to (examples, heads, length, length)."""
        examples, length, _ = hidden_states.shape
        if (
            any(kwargs.get(name) is not None for name in CACHES)
            or not self.takes(examples, length)
            or not _is_padding(attention_mask)
        ):
            return type(self._block).forward(self._block, hidden_states, attention_mask, *args, **kwargs)
        rows = self.query.rows_of(hidden_states)
        kept = None if attention_mask is None else attention_mask[:, 0, 0].expand(examples, length).contiguous()
        y = torch.empty_like(rows)
        self.native().run(
            y.data_ptr(),
            x=rows.data_ptr(),
            kept=address(kept),
            examples=examples,
            length=length,
            threads=self.query.threads,
        )
        return y.view(hidden_states.shape)

    @property
    def query(self) -> KernelLinear:
        """The first product."""
        first: KernelLinear = self._parts["query"]
        return first

    @property
    def config(self) -> Any:
        """The model's: what decides whether the kernel computes a layer at once is the same for all that share it."""
        return self._parts["attention"].config

    def takes(self, examples: int, length: int) -> bool:
        """Whether the kernel computes the layer at once for this shape."""
        if self.config._attn_implementation != "sdpa":  # "eager": weights are wanted
            return False
        # torch's attention rounds otherwise: an example's outputs would depend on the rest of its batch.
        rounds = kernel.multiplies_bytes() and all(isinstance(self._parts[name], Int8Linear) for name in _PRODUCTS[:3])
        return examples == 1 or rounds or _padded(length) <= 1.5 * length

    def tensors(self) -> Iterator[Tensor]:
        if self._held is None:
            products = [vars(self._parts[name]) for name in _PRODUCTS]
            norms = [self._parts[name]._parameters for name in _NORMS]
            held = [(part, "bias") for part in products if part["bias"] is not None]
            self._held = held + [(part, name) for part in norms for name in ("weight", "bias")]
        for part, name in self._held:
            yield part[name]

    def make(self) -> layers.Layers:
        return layers.Layers([self.layer()])

    def layer(self) -> layers.Layer:
        """As the kernel takes it, at its addresses of now."""

        def affine(name: str) -> layers.Affine:
            return layers.Affine(self._parts[name].packed, address(self._parts[name].bias))

        return layers.Layer(
            query=affine("query"),
            key=affine("key"),
            value=affine("value"),
            out=affine("out"),
            up=affine("up"),
            down=affine("down"),
            attention_norm=norm_of(self._parts["attention_norm"]),
            output_norm=norm_of(self._parts["output_norm"]),
            activation=self._activation,
            heads=self.query.out_features // self._parts["attention"].attention_head_size,
        )


def layer_forward(block: nn.Module) -> LayerForward | None:
    """The computation of the block at once, or None if it has to go part by part."""
    parts = known_parts(block)
    if kernel.isa() not in _ISAS or not parts or not all(isinstance(parts[name], KernelLinear) for name in _PRODUCTS):
        return None
    return LayerForward(block, parts, ACTIVATIONS[type(parts["activation"])])


def known_parts(block: nn.Module) -> dict[str, Any]:
    """The parts of a block that the kernel can compute at once, by their names in `BlockNames`; else {}."""
    names = BLOCKS.get(class_name(block))
    if names is None:
        return {}
    parts: dict[str, Any] = {part: block.get_submodule(path) for part, path in names._asdict().items()}
    is_known = (
        type(parts["activation"]) in ACTIVATIONS
        and not getattr(parts["attention"].config, "is_decoder", False)
        and all(is_norm(parts[name]) for name in _NORMS)
    )
    return parts if is_known else {}


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalization that the kernel computes."""
    return type(module) is nn.LayerNorm and module.weight is not None and module.bias is not None


def norm_of(part: nn.LayerNorm) -> layers.Norm:
    """As the kernel takes it."""
    return layers.Norm(address(part.weight), address(part.bias), part.eps)


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
