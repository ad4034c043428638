"""A whole pass through an encoder, embeddings included, in one call of the native kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mvprune.runtime import layers
from mvprune.runtime._embedding import StoredEmbedding, table_of
from mvprune.runtime._encoders import Encoder, encoder_of
from mvprune.runtime._layer import OneCall, held_by, norm_of, takes
from mvprune.runtime._linear import address
from mvprune.runtime._places import Tables, span_for

_RECORDED = ("output_attentions", "output_hidden_states")
_OWN_HOOKS = "transformers.utils.output_capturing"  # do nothing unless a call records: then it goes layer by layer

Ids = npt.NDArray[np.int64]


class _Made(NamedTuple):
    layers: layers.Layers
    tables: Tables | None  # the layers refer to their memory


class ModelForward(OneCall[_Made]):
    """The replacement of a model's `forward`. Calls out of the ordinary go the model's own way, layer by layer."""

    _held: list[tuple[dict[str, Any], str]] | None = None  # where the tensors lie that are in no block

    def __init__(self, model: Any, encoder: Encoder) -> None:
        self._model, self._encoder = model, encoder
        parts = (model.embeddings, *encoder.modules, encoder.norm, *([encoder.last] if encoder.last else []))
        self._watched = (*parts, model.get_submodule(encoder.family.blocks.partition(".")[0]))
        deciding = encoder.blocks if encoder.family.by_function else ()
        self._deciding = list({id(block.attention.config): block for block in deciding}.values())
        self._span = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Hidden states, and what the pooler makes of them."""
        names = self._encoder.family.arguments
        given = dict(zip(names, args, strict=False)) | kwargs
        ids, rows = given.get("input_ids"), {name: given.get(name) for name in names[1:]}
        others = {name: value for name, value in given.items() if name not in names}
        if len(args) > len(names) or ids is None or not self._takes(ids, rows, others):
            return type(self._model).forward(self._model, *args, **kwargs)
        y = self._run(_array(ids), **rows)
        pooler = getattr(self._model, "pooler", None)
        pooled = {"pooler_output": None if pooler is None else pooler(y)} if hasattr(self._model, "pooler") else {}
        return self._encoder.family.output(last_hidden_state=y, **pooled)

    def _takes(self, ids: Tensor, rows: Mapping[str, Tensor | None], others: Mapping[str, Any]) -> bool:
        config = self._model.config
        return (
            ids.dim() == 2
            and all(one is None or one.shape == ids.shape for one in rows.values())
            and all(_is_usual(name, one) for name, one in others.items())
            and not any(getattr(config, name, False) for name in _RECORDED)
            and getattr(config, "return_dict", True)
            and not any(_is_watched(module) for module in self._watched)
            and all(takes(block) for block in self._deciding)
            and (rows.get("position_ids") is None or any(given == "positions" for _, given in self._encoder.tables))
        )

    def _run(
        self,
        ids: Ids,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        examples, length = ids.shape
        kept = None if attention_mask is None else attention_mask.numpy() != 0
        within = None if kept is None or not examples or kept[:, -1].all() else _within(kept)
        lengths = np.full(examples, length) if within is None else within.sum(1)
        types = np.zeros_like(ids) if token_type_ids is None else _array(token_type_ids)
        positions = self._positions(ids) if position_ids is None else _array(position_ids)
        rows = {"words": ids, "types": types, "positions": positions}
        given = [_chosen(rows[name], within) for _, name in self._encoder.tables]
        shown = None if kept is None else _chosen(kept, within)
        query = self._encoder.blocks[0].query
        y = torch.empty(int(lengths.sum()), query.in_features)
        if self._encoder.places is None:
            made = self.native()
        else:
            span = self._span = max(self._span, span_for(int(lengths.max(initial=0))))
            made = self.native(span)
        made.layers.run(
            address(y),
            ids=[one.ctypes.data for one in given],
            kept=0 if shown is None or shown.all() else shown.ctypes.data,
            lengths=lengths,
            threads=query.threads,
        )
        if within is None:
            return y.view(examples, length, query.in_features)
        whole = torch.zeros(examples, length, query.in_features)
        whole[torch.from_numpy(within)] = y
        return whole

    def _positions(self, ids: Ids) -> Ids:
        if self._encoder.family.counts_padding:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        padding = self._model.embeddings.padding_idx
        shown = ids != padding
        found: Ids = np.cumsum(shown, axis=1) * shown + padding
        return found

    def tensors(self) -> Iterator[Tensor]:
        if self._held is None:
            norms = [self._encoder.norm, *([self._encoder.last] if self._encoder.last else [])]
            held = [place for norm in norms for place in held_by(norm)]
            for table, _ in self._encoder.tables:
                held += [] if isinstance(table, StoredEmbedding) else held_by(table)
            self._held = held + (self._encoder.places.sources() if self._encoder.places else [])
        for part, name in self._held:
            yield part[name]
        for block in self._encoder.blocks:
            yield from block.tensors()

    def make(self, *sizes: int) -> _Made:
        tables = [table for table, _ in self._encoder.tables]
        embedding = layers.Embedding(
            [table_of(table) for table in tables], tables[0].embedding_dim, norm_of(self._encoder.norm)
        )
        last = layers.NO_NORM if self._encoder.last is None else norm_of(self._encoder.last)
        if self._encoder.places is None:
            return _Made(layers.Layers([block.layer() for block in self._encoder.blocks], embedding, last), None)
        with torch.inference_mode():
            made = self._encoder.places.tables(*sizes)
        pairs = zip(self._encoder.blocks, made.places, strict=True)
        return _Made(layers.Layers([block.layer(one, made.scale) for block, one in pairs], embedding, last), made)

    def __getstate__(self) -> dict[str, Any]:  # a copy has other tensors
        return {name: value for name, value in super().__getstate__().items() if name != "_held"}


def model_forward(model: nn.Module) -> ModelForward | None:
    """The computation of a model at once, or None if it has to go layer by layer.

    Args:
        model: any module.
    """
    encoder = encoder_of(model)
    return None if encoder is None else ModelForward(model, encoder)


def _is_usual(name: str, value: Any) -> bool:
    """Whether a call with this argument gives what one without it gives."""
    return value is None or (name == "return_dict" and bool(value)) or (name in _RECORDED and value is False)


def _is_watched(module: nn.Module) -> bool:
    """Whether a module has hooks, other than those which transformers leaves in it once a call has recorded."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(getattr(hook, "__module__", "") != _OWN_HOOKS for hook in hooks)


def _within(kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The tokens up to the last one of each example that is kept; all of an example that has none."""
    found: npt.NDArray[np.bool_] = np.logical_or.accumulate(kept[:, ::-1], axis=1)[:, ::-1]
    return found | ~found[:, :1]


def _chosen(rows: npt.NDArray[Any], within: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
    return np.ascontiguousarray(rows if within is None else rows[within])


def _array(ids: Tensor) -> Ids:
    array: Ids = ids.to("cpu", torch.int64).contiguous().numpy()
    return array
