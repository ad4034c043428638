"""A whole block of a Transformer, BERT's and its like, in one call of the native kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import activations

from mvprune.artifact.structures import class_name
from mvprune.runtime import kernel, layers
from mvprune.runtime._linear import KernelLinear, address
from mvprune.runtime.kernel import Activation
from mvprune.spec.structures import BLOCKS

ACTIVATIONS: dict[type[nn.Module], Activation] = {
    activations.GELUActivation: "gelu",
    activations.NewGELUActivation: "gelu_tanh",
    activations.GELUTanh: "gelu_tanh",
    nn.ReLU: "relu",
}
_ISAS = ("avx512", "avx2")  # on others torch's attention is as fast or faster, or has not been compared
PRODUCTS = ("query", "key", "value", "out", "up", "down")
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
    def make(self, *sizes: int) -> Made:
        """The kernel's description of the block, with its present addresses, for calls of these sizes."""

    def native(self, *sizes: int) -> Made:
        """The same, made anew only for other sizes, and where a tensor was replaced, as `Module.to` does.

        Raises:
            RuntimeError: a tensor is not float32 on the CPU.
        """
        tensors = list(self.tensors())
        places = (*sizes, *(tensor.data_ptr() for tensor in tensors))
        made = self._made
        if made is None or made[0] != places:
            for tensor in tensors:
                if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
                    found = f"{tensor.dtype} on {tensor.device}"
                    raise RuntimeError(f"the parameters of a sparse layer must be float32 on the CPU, got {found}")
            made = self._made = places, self.make(*sizes)
        return made[1]

    def __getstate__(self) -> dict[str, Any]:  # a copy has other addresses
        return {name: value for name, value in self.__dict__.items() if name != "_made"}


class Block:
    """A block all of whose parts the kernel computes.

    Args:
        parts: its modules, by their names in `layers.Layer`, and "attention". Without "key" and "value", the rows of
            "query" are those of all three. A norm may be `nn.Identity`.
        normalizes_before: see `layers.Layer`.
        is_gated: the same.
    """

    _held: list[tuple[dict[str, Any], str]] | None = None  # where the tensors lie; modules look them up slowly

    def __init__(self, parts: dict[str, Any], *, normalizes_before: bool = False, is_gated: bool = False) -> None:
        self.attention: Any = parts["attention"]
        self.query: KernelLinear = parts["query"]
        self._parts = parts
        self._forms = {"normalizes_before": normalizes_before, "is_gated": is_gated}

    def tensors(self) -> Iterator[Tensor]:
        """All that the kernel reads by its address."""
        if self._held is None:
            products = [vars(self._parts[name]) for name in PRODUCTS if name in self._parts]
            held = [(part, "bias") for part in products if part["bias"] is not None]
            for name in _NORMS:
                held += held_by(self._parts[name])
            self._held = held
        for part, name in self._held:
            yield part[name]

    def layer(self, places: layers.Places | None = None, scale: float | None = None) -> layers.Layer:
        """As the kernel takes it, at its addresses of now."""
        products = {
            name: layers.Affine(self._parts[name].packed, address(self._parts[name].bias))
            if name in self._parts
            else None
            for name in PRODUCTS
        }
        attended = self.query.out_features // (1 if "key" in self._parts else 3)
        size = getattr(self.attention, "attention_head_size", None) or self.attention.head_dim
        made: dict[str, Any] = products | {name: norm_of(self._parts[name]) for name in _NORMS} | self._forms
        activation = ACTIVATIONS[type(self._parts["activation"])]
        return layers.Layer(**made, activation=activation, heads=attended // size, places=places, scale=scale)

    def __getstate__(self) -> dict[str, Any]:  # a copy has other tensors
        return {name: value for name, value in self.__dict__.items() if name != "_held"}


class LayerForward(OneCall[layers.Layers]):
    """The replacement of a block's `forward`. Calls out of the ordinary go the block's own way, part by part.

    The block stays: hooks, such as those that record hidden states, look for its class.
    """

    def __init__(self, module: nn.Module, block: Block) -> None:
        self._module, self.block = module, block

    def __call__(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """(examples, length, hidden) to the same, for a mask that broadcasts to (examples, heads, length, length)."""
        examples, length, _ = hidden_states.shape
        if (
            any(kwargs.get(name) is not None for name in CACHES)
            or not takes(self.block)
            or not _is_padding(attention_mask)
        ):
            return type(self._module).forward(self._module, hidden_states, attention_mask, *args, **kwargs)
        query = self.block.query
        rows = query.rows_of(hidden_states)
        kept = None if attention_mask is None else attention_mask[:, 0, 0].expand(examples, length).contiguous()
        y = torch.empty_like(rows)
        self.native().run(
            y.data_ptr(),
            x=rows.data_ptr(),
            kept=address(kept),
            lengths=np.full(examples, length),
            threads=query.threads,
        )
        return y.view(hidden_states.shape)

    def tensors(self) -> Iterator[Tensor]:
        yield from self.block.tensors()

    def make(self, *sizes: int) -> layers.Layers:
        return layers.Layers([self.block.layer()])


def takes(block: Block) -> bool:
    """Whether the kernel computes a block at once, as far as its model's configuration says."""
    return bool(block.attention.config._attn_implementation == "sdpa")  # "eager": weights are wanted


def held_by(module: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """The places of a module's own parameters."""
    return [(module._parameters, name) for name, value in module._parameters.items() if value is not None]


def layer_forward(module: nn.Module) -> LayerForward | None:
    """The computation of a block at once, or None if it has to go part by part."""
    block = whole_block(known_parts(module))
    return None if block is None else LayerForward(module, block)


def whole_block(parts: dict[str, Any], **forms: bool) -> Block | None:
    """A block, or None if the kernel does not compute all of these parts; the forms are those of `Block`."""
    products = [parts[name] for name in PRODUCTS if name in parts]
    if kernel.isa() not in _ISAS or not products or not all(isinstance(one, KernelLinear) for one in products):
        return None
    return Block(parts, **forms)


def known_parts(block: nn.Module) -> dict[str, Any]:
    """The parts of a block that normalizes after each sum, if the kernel knows their kinds, by their names in
    `BlockNames`; else {}."""
    names = BLOCKS.get(class_name(block))
    if names is None:
        return {}
    parts = parts_at(block, names._asdict())
    return {} if parts and getattr(parts["attention"].config, "is_decoder", False) else parts


def parts_at(block: nn.Module, names: Mapping[str, str]) -> dict[str, Any]:
    """The parts of a block at these paths; {} if the kernel does not know the activation or a norm."""
    parts: dict[str, Any] = {part: block.get_submodule(path) for part, path in names.items()}
    is_known = type(parts["activation"]) in ACTIVATIONS and all(
        is_norm(parts[name]) or type(parts[name]) is nn.Identity for name in _NORMS
    )
    return parts if is_known else {}


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalization that the kernel computes."""
    return type(module) is nn.LayerNorm and module.weight is not None


def norm_of(part: nn.Module) -> layers.Norm:
    """As the kernel takes it."""
    if not isinstance(part, nn.LayerNorm):
        return layers.NO_NORM
    return layers.Norm(address(part.weight), address(part.bias), part.eps)


def _is_padding(mask: Tensor | None) -> bool:
    """Whether a mask hides tokens from all heads and queries alike."""
    if mask is None:
        return True
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1:
        return False
    rows = mask.numpy()  # a quarter of the time that torch takes
    return mask.shape[2] == 1 or mask.stride(2) == 0 or bool((rows == rows[:, :, :1]).all())
