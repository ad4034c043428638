"""A step of a decoder, one more token of each text, in one call of the native kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache, activations
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, BaseModelOutputWithPastAndCrossAttentions

from mvprune.artifact.structures import class_name
from mvprune.runtime._layer import ACTIVATIONS, CACHES, OneCall, is_norm
from mvprune.runtime._linear import KernelLinear, address
from mvprune.runtime.decoder import Affine, Block, Decoder, Gate, Normal

_PACKED = "GPT2Model"
_ROTATED = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model")
_GATES: Mapping[type[nn.Module], Gate] = MappingProxyType(
    {**ACTIVATIONS, nn.SiLU: "silu", activations.SiLUActivation: "silu"}  # type: ignore[dict-item]
)
_READ = frozenset({"input_ids", "attention_mask", "position_ids", "use_cache", *CACHES})
_RECORDED = ("output_attentions", "output_hidden_states")
_CAPTURING = "transformers.utils.output_capturing"
_ROOM = "_mvprune_room"  # attribute of a cache's layer
_SPARE = 64  # tokens that a new buffer has room for, at least

# Parts of a block by their names in `Block`.
_GPT2 = MappingProxyType(
    {
        "attention_norm": "ln_1",
        "query": "attn.c_attn",
        "out": "attn.c_proj",
        "feed_norm": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
        "activation": "mlp.act",
        "attention": "attn",
    }
)
_LLAMA = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "out": "self_attn.o_proj",
        "feed_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "activation": "mlp.act_fn",
        "attention": "self_attn",
    }
)
_QWEN3 = MappingProxyType({**_LLAMA, "query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm"})
_PRODUCTS = ("query", "key", "value", "out", "gate", "up", "down")
_NORMS = ("attention_norm", "feed_norm", "query_norm", "key_norm")


class _Room:
    """The keys and values of a cache's layer in buffers with room for more tokens. The layer shows parts of them."""

    def __init__(self, layer: Any, length: int, capacity: int) -> None:
        texts, groups, _, size = layer.keys.shape
        self.capacity, self._owner = capacity, id(layer)  # a copy of the layer must not write into the same room
        self.keys, self.values = (torch.empty(texts, groups, capacity, size) for _ in range(2))
        self.keys[:, :, :length], self.values[:, :, :length] = layer.keys, layer.values
        self._shown = (layer.keys, layer.values)
        self._filled = length

    def fits(self, layer: Any, length: int) -> bool:
        """Whether the layer shows all that was written, and there is room for one more token.

        After a crop it does not: what is behind may still be seen elsewhere.
        """
        shown = layer.keys is self._shown[0] and layer.values is self._shown[1]
        return shown and self._owner == id(layer) and self._filled == length < self.capacity

    def show(self, layer: Any, length: int) -> None:
        """Makes the layer show so many tokens."""
        layer.keys, layer.values = self._shown = self.keys.narrow(2, 0, length), self.values.narrow(2, 0, length)
        self._filled = length


class DecoderForward(OneCall[Decoder]):
    """The replacement of a model's `forward`. All but steps with a plain cache go the model's own way."""

    def __init__(self, model: Any, blocks: list[dict[str, Any]], last: nn.Module) -> None:
        self._model, self._blocks, self._last = model, blocks, last
        self._watched = tuple(model.modules())
        self._products = [part[name] for part in blocks for name in _PRODUCTS if name in part]
        self._most = min(layer.few for layer in self._products)

    def __call__(self, input_ids: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Hidden states and the cache, of one more token of each text, (texts, 1)."""
        if not args and input_ids is not None:
            cache = next((kwargs[name] for name in CACHES if kwargs.get(name) is not None), None)
            if self._takes(input_ids, cache, kwargs) and (y := self._run(input_ids, cache, kwargs)) is not None:
                return self._output(y, cache)
        return type(self._model).forward(self._model, input_ids, *args, **kwargs)

    def _takes(self, ids: Tensor, cache: Any, given: Mapping[str, Any]) -> bool:
        config = self._model.config
        if (
            type(cache) is not DynamicCache
            or ids.dim() != 2
            or ids.shape[1] != 1
            or not 0 < len(ids) <= self._most
            or len(cache.layers) != len(self._blocks)
            or given.get("use_cache") is False
            or any(getattr(config, name, False) for name in _RECORDED)
            or not getattr(config, "return_dict", True)
            or not all(name in _READ or not one or (name == "return_dict") for name, one in given.items())
            or any(_has_hooks(one) for one in self._watched if one._forward_hooks or one._forward_pre_hooks)
        ):
            return False
        length = cache.get_seq_length()
        block = self._blocks[0]
        shape = (len(ids), block["groups"], length, block["size"])
        return length > 0 and all(_holds(layer, shape) for layer in cache.layers)

    def _run(self, ids: Tensor, cache: Any, given: Mapping[str, Any]) -> Tensor | None:
        """None: the model has to do it."""
        texts, length = len(ids), cache.get_seq_length()
        kept = None
        if (mask := given.get("attention_mask")) is not None:
            if mask.shape != (texts, length + 1):
                return None
            kept = np.ascontiguousarray(mask.numpy() != 0)
            if not kept[:, -1].all():
                return None
            kept = None if kept.all() else kept
        positions = given.get("position_ids")
        positions = torch.full((1, 1), length) if positions is None else positions
        if positions.shape not in ((1, 1), (texts, 1)):
            return None
        x, turn = self._entered(ids, positions)
        rooms = _rooms(cache, length)
        y = torch.empty_like(x)
        taken = self.native().run(
            x.data_ptr(),
            y.data_ptr(),
            texts=texts,
            length=length,
            capacity=rooms[0].capacity,
            keys=[room.keys.data_ptr() for room in rooms],
            values=[room.values.data_ptr() for room in rooms],
            turn=(address(turn[0]), address(turn[1])),
            kept=0 if kept is None else kept.ctypes.data,
            threads=self._products[0].threads,
        )
        if not taken:
            return None
        for room, layer in zip(rooms, cache.layers, strict=True):
            room.show(layer, length + 1)
        return y

    def _entered(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
        """What goes into the first block, and cosines and sines of the rotation, (texts, size)."""
        if class_name(self._model) == _PACKED:
            return (self._model.wte(ids) + self._model.wpe(positions)).contiguous(), (None, None)
        x = self._model.embed_tokens(ids).contiguous()
        size = self._blocks[0]["size"]
        cosines, sines = (
            part[:, 0].expand(len(ids), size).contiguous() for part in self._model.rotary_emb(x, positions)
        )
        return x, (cosines, sines)

    def _output(self, y: Tensor, cache: Any) -> Any:
        made = (
            BaseModelOutputWithPastAndCrossAttentions if class_name(self._model) == _PACKED else BaseModelOutputWithPast
        )
        name = next(one for one in CACHES if one in made.__dataclass_fields__)
        return made(last_hidden_state=y, **{name: cache})

    def tensors(self) -> Iterator[Tensor]:
        norms = [part[name] for part in self._blocks for name in _NORMS if name in part]
        for norm in (*norms, self._last):
            yield norm.weight
            if (bias := getattr(norm, "bias", None)) is not None:
                yield bias
        for product in self._products:
            if product.bias is not None:
                yield product.bias

    def make(self) -> Decoder:
        return Decoder([_block(parts) for parts in self._blocks], _normal(self._last))


def decoder_forward(model: nn.Module) -> DecoderForward | None:
    """The computation of a step at once, or None if it has to go block by block.

    Args:
        model: any module.
    """
    name, whole = class_name(model), model
    packed = name == _PACKED
    if not packed and name not in _ROTATED:
        return None
    config: Any = whole.config
    if getattr(config, "sliding_window", None) is not None or getattr(config, "add_cross_attention", False):
        return None
    names = _GPT2 if packed else _QWEN3 if name == "Qwen3Model" else _LLAMA
    inner: Any = whole.h if packed else whole.layers
    blocks = [{part: block.get_submodule(path) for part, path in names.items()} for block in inner]
    last: Any = whole.ln_f if packed else whole.norm
    for parts in blocks:
        products = [parts[part] for part in _PRODUCTS if part in parts]
        norms = [parts[part] for part in _NORMS if part in parts]
        if (
            not all(isinstance(one, KernelLinear) and one.masked is not None for one in products)
            or not all(_is_known(norm) for norm in (*norms, last))
            or type(parts["activation"]) not in _GATES
        ):
            return None
        heads = parts["attention"].num_heads if packed else config.num_attention_heads
        parts |= {"heads": heads, "groups": heads if packed else config.num_key_value_heads}
        parts |= {"size": parts["attention"].head_dim, "scale": parts["attention"].scaling}
    return DecoderForward(whole, blocks, last) if blocks else None


def _has_hooks(module: nn.Module) -> bool:
    """Whether someone looks at what goes through a module; transformers' own hooks, which stay, wait to be asked."""
    hooks = module._forward_hooks.values()
    others = any(getattr(hook, "__module__", "") != _CAPTURING for hook in hooks)
    return others or bool(module._forward_pre_hooks)


def _holds(layer: Any, shape: tuple[int, ...]) -> bool:
    """Whether a cache's layer has keys and values of that shape as they are computed."""
    if type(layer) is not DynamicLayer:
        return False
    parts: tuple[Any, ...] = (layer.keys, layer.values)
    return all(part.shape == shape and part.dtype is torch.float32 and part.is_cpu for part in parts)


def _rooms(cache: Any, length: int) -> list[_Room]:
    """Those of the layers, all with the same room for more than `length` tokens."""
    rooms = [vars(layer).get(_ROOM) for layer in cache.layers]
    if all(room is not None and room.fits(layer, length) for room, layer in zip(rooms, cache.layers, strict=True)):
        known: list[_Room] = [room for room in rooms if room is not None]
        if all(room.capacity == known[0].capacity for room in known):
            return known
    made = [_Room(layer, length, length + max(_SPARE, length // 2)) for layer in cache.layers]
    for layer, room in zip(cache.layers, made, strict=True):
        setattr(layer, _ROOM, room)
    return made


def _block(parts: Mapping[str, Any]) -> Block:
    def affine(name: str) -> Affine | None:
        return Affine(parts[name].masked, address(parts[name].bias)) if name in parts else None

    def norm(name: str) -> Normal | None:
        return _normal(parts[name]) if name in parts else None

    made: dict[str, Any] = {name: affine(name) for name in _PRODUCTS} | {name: norm(name) for name in _NORMS}
    made |= {name: parts[name] for name in ("heads", "groups", "size", "scale")}
    return Block(**made, activation=_GATES[type(parts["activation"])])


def _is_known(norm: nn.Module) -> bool:
    """Whether a module is a normalization that the kernel computes."""
    return is_norm(norm) or class_name(norm).endswith("RMSNorm")


def _normal(norm: Any) -> Normal:
    if is_norm(norm):
        return Normal(address(norm.weight), address(norm.bias), norm.eps, is_centred=True)
    return Normal(address(norm.weight), 0, norm.variance_epsilon, is_centred=False)
