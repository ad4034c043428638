"""A step of a decoder, one more token of each text, in one call of the native kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPast, BaseModelOutputWithPastAndCrossAttentions

from mvprune.runtime._families import NORMS, PRODUCTS, Parts, block_of, normal_of, parts_of
from mvprune.runtime._layer import CACHES, OneCall
from mvprune.runtime._linear import address
from mvprune.runtime._rooms import holds, rooms_of
from mvprune.runtime.decoder import Decoder, Source

_READ = frozenset({"input_ids", "attention_mask", "position_ids", "use_cache", *CACHES})
_OF_SOURCE = frozenset({"encoder_hidden_states", "encoder_attention_mask"})
_RECORDED = ("output_attentions", "output_hidden_states")
_CAPTURING = "transformers.utils.output_capturing"

_Mask = npt.NDArray[np.bool_]


class _CannotTakeError(Exception):
    """A call that the model has to compute itself."""


class DecoderForward(OneCall[Decoder]):
    """The replacement of a model's `forward`. All but steps with a plain cache go the model's own way."""

    def __init__(self, model: Any, parts: Parts) -> None:
        self._model, self._parts = model, parts
        self._watched = tuple(model.modules())
        self._products = [block[name] for block in parts.blocks for name in PRODUCTS if name in block]
        self._most = min(layer.few for layer in self._products)
        self._read = _READ | _OF_SOURCE if parts.has_source else _READ

    def __call__(self, input_ids: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Hidden states and the cache, of one more token of each text, (texts, 1)."""
        if not args and input_ids is not None:
            cache = next((kwargs[name] for name in CACHES if kwargs.get(name) is not None), None)
            if self._takes(input_ids, cache, kwargs) and (y := self._run(input_ids, cache, kwargs)) is not None:
                return self._output(y, cache)
        return type(self._model).forward(self._model, input_ids, *args, **kwargs)

    def _takes(self, ids: Tensor, cache: Any, given: Mapping[str, Any]) -> bool:
        config = self._model.config
        return (
            ids.dim() == 2
            and ids.shape[1] == 1
            and 0 < len(ids) <= self._most
            and self._takes_cache(cache, len(ids))
            and given.get("use_cache") is not False
            and not any(getattr(config, name, False) for name in _RECORDED)
            and getattr(config, "return_dict", True)
            and all(name in self._read or not one or name == "return_dict" for name, one in given.items())
            and not any(_has_hooks(one) for one in self._watched if one._forward_hooks or one._forward_pre_hooks)
        )

    def _takes_cache(self, cache: Any, texts: int) -> bool:
        count, block = len(self._parts.blocks), self._parts.blocks[0]
        own = cache
        if self._parts.has_source:
            if type(cache) is not EncoderDecoderCache or not all(cache.is_updated.get(i) for i in range(count)):
                return False
            own, source = cache.self_attention_cache, cache.cross_attention_cache
            shape = (texts, block["groups"], source.get_seq_length(), block["size"])
            if type(source) is not DynamicCache or not holds(source, shape, count):
                return False
        if type(own) is not DynamicCache or not (length := own.get_seq_length()):
            return False
        return holds(own, (texts, block["groups"], length, block["size"]), count)

    def _run(self, ids: Tensor, cache: Any, given: Mapping[str, Any]) -> Tensor | None:
        """None: the model has to do it."""
        texts, length = len(ids), cache.get_seq_length()
        try:
            kept = _kept(given.get("attention_mask"), (texts, length + 1))
            if kept is not None and not kept[:, -1].all():
                return None
            x, turn = self._entered(ids, self._positions(given.get("position_ids"), texts, length, kept))
            source, source_kept = self._source(cache, given.get("encoder_attention_mask"), texts)
        except _CannotTakeError:
            return None
        own = cache.self_attention_cache if self._parts.has_source else cache
        rooms = rooms_of(own, length)
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
            source=source._replace(kept=0 if source_kept is None else source_kept.ctypes.data),
            threads=self._products[0].threads,
        )
        if not taken:
            return None
        for room, layer in zip(rooms, own.layers, strict=True):
            room.show(layer, length + 1)
        return y

    def _positions(self, given: Tensor | None, texts: int, length: int, kept: _Mask | None) -> Tensor:
        """Of the new tokens, (1, 1) or (texts, 1)."""
        places = self._parts.family.places
        if given is None and (places != "given or kept" or kept is None):
            return torch.full((1, 1), length)
        if given is None or places == "text" or given.shape not in ((1, 1), (texts, 1)):
            raise _CannotTakeError
        return given

    def _entered(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
        """What goes into the first block, and cosines and sines of the rotation, (texts, turned)."""
        model, family = self._model, self._parts.family
        x: Tensor = getattr(model, family.words)(ids)
        if not family.positions:
            size = self._parts.blocks[0]["turned"]
            turn = (part[:, 0].expand(len(ids), size).contiguous() for part in model.rotary_emb(x, positions))
            cosines, sines = turn
            return x.contiguous(), (cosines, sines)
        table: Any = getattr(model, family.positions)
        if isinstance(table, nn.Embedding):
            places = nn.Embedding.forward(table, positions + getattr(table, "offset", 0))
        else:  # one that an artifact stores
            places = table(positions)
        x = x * getattr(model, "embed_scale", 1.0) + places
        norm = getattr(model, "layernorm_embedding", None)
        return (x if norm is None else norm(x)).contiguous(), (None, None)

    def _source(self, cache: Any, mask: Tensor | None, texts: int) -> tuple[Source, _Mask | None]:
        """What is attended to beside the text, and its mask, whose memory is the caller's."""
        if not self._parts.has_source:
            return Source(0, (), ()), None
        held = cache.cross_attention_cache
        length = held.get_seq_length()
        kept = _kept(mask, (texts, length))
        if kept is not None and not kept.any(1).all():
            raise _CannotTakeError
        for layer in held.layers:
            layer.keys, layer.values = layer.keys.contiguous(), layer.values.contiguous()
        keys, values = ([getattr(layer, name).data_ptr() for layer in held.layers] for name in ("keys", "values"))
        return Source(length, keys, values), kept

    def _output(self, y: Tensor, cache: Any) -> Any:
        crosses = self._parts.has_source or self._parts.family.positions == "wpe"
        made: Any = BaseModelOutputWithPastAndCrossAttentions if crosses else BaseModelOutputWithPast
        name = next(one for one in CACHES if one in made.__dataclass_fields__)
        return made(last_hidden_state=y, **{name: cache})

    def tensors(self) -> Iterator[Tensor]:
        norms = [block[name] for block in self._parts.blocks for name in NORMS if name in block]
        for norm in norms if self._parts.last is None else [*norms, self._parts.last]:
            yield norm.weight
            if (bias := getattr(norm, "bias", None)) is not None:
                yield bias
        for product in self._products:
            if product.bias is not None:
                yield product.bias

    def make(self, *sizes: int) -> Decoder:
        blocks = [block_of(block, self._parts.family) for block in self._parts.blocks]
        return Decoder(blocks, None if self._parts.last is None else normal_of(self._parts.last))


def decoder_forward(model: nn.Module) -> DecoderForward | None:
    """The computation of a step at once, or None if it has to go block by block.

    Args:
        model: any module.
    """
    parts = parts_of(model)
    return None if parts is None else DecoderForward(model, parts)


def _kept(mask: Tensor | None, shape: tuple[int, int]) -> _Mask | None:
    """The tokens that are attended to, None for all.

    Raises:
        _CannotTakeError: the mask has another shape.
    """
    if mask is None:
        return None
    if mask.shape != shape:
        raise _CannotTakeError
    kept: _Mask = np.ascontiguousarray(mask.numpy() != 0)
    return None if kept.all() else kept


def _has_hooks(module: nn.Module) -> bool:
    """Whether someone looks at what goes through a module; transformers' own hooks, which stay, wait to be asked."""
    hooks = module._forward_hooks.values()
    others = any(getattr(hook, "__module__", "") != _CAPTURING for hook in hooks)
    return others or bool(module._forward_pre_hooks)
