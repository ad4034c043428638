"""A whole pass through the encoder of a BERT, embeddings included, in one call of the native kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from mvprune.artifact.structures import class_name
from mvprune.runtime import layers
from mvprune.runtime._embedding import StoredEmbedding, is_plain, table_of
from mvprune.runtime._layer import LayerForward, OneCall, is_norm, norm_of
from mvprune.runtime._linear import address

_COUNT_FROM_0 = ("BertModel",)
_COUNT_WITHOUT_PADDING = ("CamembertModel", "RobertaModel", "XLMRobertaModel")  # positions start after padding's
_TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings")  # in the order in which they are added
_RECORDED = ("output_attentions", "output_hidden_states")

Ids = npt.NDArray[np.int64]


class ModelForward(OneCall[layers.Layers]):
    """The replacement of a model's `forward`. Calls out of the ordinary go the model's own way, layer by layer."""

    def __init__(self, model: Any, blocks: list[LayerForward]) -> None:
        self._model, self._blocks = model, blocks
        self._counts_padding = class_name(model) in _COUNT_FROM_0
        self._deciding = list({id(block.config): block for block in blocks}.values())
        self._watched = (model.embeddings, model.encoder, *model.encoder.layer)

    def __call__(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Hidden states, and what the pooler makes of them."""
        given = (attention_mask, token_type_ids, position_ids)
        if args or input_ids is None or not self._takes(input_ids, given, kwargs):
            own = type(self._model).forward
            return own(self._model, input_ids, attention_mask, token_type_ids, position_ids, *args, **kwargs)
        y = self._run(_array(input_ids), *given)
        pooled = None if self._model.pooler is None else self._model.pooler(y)
        return BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=y, pooler_output=pooled)

    def _takes(self, ids: Tensor, given: tuple[Tensor | None, ...], others: Mapping[str, Any]) -> bool:
        config = self._model.config
        return (
            ids.dim() == 2
            and all(one is None or one.shape == ids.shape for one in given)
            and all(one is None or (name == "return_dict" and one) for name, one in others.items())
            and not any(getattr(config, name, False) for name in _RECORDED)
            and getattr(config, "return_dict", True)
            and not any(module._forward_hooks or module._forward_pre_hooks for module in self._watched)
            and all(block.takes(*ids.shape) for block in self._deciding)
        )

    def _run(self, ids: Ids, mask: Tensor | None, types: Tensor | None, positions: Tensor | None) -> Tensor:
        examples, length = ids.shape
        kept = None if mask is None else np.ascontiguousarray(mask.numpy() != 0)
        if kept is not None and kept.all():
            kept = None
        rows = (
            ids,
            np.zeros_like(ids) if types is None else _array(types),
            self._positions(ids) if positions is None else _array(positions),
        )
        y = torch.empty(examples, length, self._blocks[0].query.in_features)
        self.native().run(
            address(y),
            ids=[one.ctypes.data for one in rows],
            kept=0 if kept is None else kept.ctypes.data,
            examples=examples,
            length=length,
            threads=self._blocks[0].query.threads,
        )
        return y

    def _positions(self, ids: Ids) -> Ids:
        if self._counts_padding:
            return np.ascontiguousarray(np.broadcast_to(np.arange(ids.shape[1]), ids.shape))
        padding = self._model.embeddings.padding_idx
        shown = ids != padding
        return np.ascontiguousarray(np.cumsum(shown, axis=1) * shown + padding)

    def _tables(self) -> list[Any]:
        return [self._model.embeddings.get_submodule(name) for name in _TABLES]

    def tensors(self) -> Iterator[Tensor]:
        for table in self._tables():
            if not isinstance(table, StoredEmbedding):
                yield table.weight
        yield from (self._model.embeddings.LayerNorm.weight, self._model.embeddings.LayerNorm.bias)
        for block in self._blocks:
            yield from block.tensors()

    def make(self) -> layers.Layers:
        tables = self._tables()
        norm = norm_of(self._model.embeddings.LayerNorm)
        embedding = layers.Embedding([table_of(table) for table in tables], tables[0].embedding_dim, norm)
        return layers.Layers([block.layer() for block in self._blocks], embedding)


def model_forward(model: nn.Module, forwards: Mapping[nn.Module, LayerForward]) -> ModelForward | None:
    """The computation of the model at once, or None if it has to go layer by layer.

    Args:
        model: any module.
        forwards: of the blocks that the kernel computes at once.
    """
    if class_name(model) not in (*_COUNT_FROM_0, *_COUNT_WITHOUT_PADDING):
        return None
    whole: Any = model
    blocks = [forwards.get(block) for block in whole.encoder.layer]
    tables = [whole.embeddings.get_submodule(name) for name in _TABLES]
    if (
        not blocks
        or not all(isinstance(table, StoredEmbedding) or is_plain(table) for table in tables)
        or not is_norm(whole.embeddings.LayerNorm)
        or getattr(whole.embeddings, "position_embedding_type", "absolute") != "absolute"
    ):
        return None
    known = [block for block in blocks if block is not None]
    return ModelForward(whole, known) if len(known) == len(blocks) else None


def _array(ids: Tensor) -> Ids:
    array: Ids = ids.to("cpu", torch.int64).contiguous().numpy()
    return array
