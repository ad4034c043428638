"""The head of a model that writes text: whole and exact logits, or where only the first of them matter, those exact."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import GenerationConfig

from mvprune.runtime._linear import address
from mvprune.runtime.masked import FEW
from mvprune.runtime.vocabulary import RoundedVocabulary, exact_int8

SMALLEST = 2048
"""Words of a vocabulary from which on rounding it is worth the memory."""

_GREEDY = 16  # words that are exact where the first is taken: an end of the text may be forbidden
_MOST = 128  # the same at most: more words than that are computed as fast exactly
_TOP: ContextVar[int] = ContextVar("_TOP", default=0)

# Settings of `generate` that only choose among the first words, or say when to stop.
_ONLY_FIRST = frozenset(
    {
        "_from_model_config",
        "bos_token_id",
        "cache_config",
        "cache_implementation",
        "decoder_start_token_id",
        "disable_compile",
        "do_sample",
        "eos_token_id",
        "max_length",
        "max_new_tokens",
        "max_time",
        "min_length",
        "min_new_tokens",
        "num_return_sequences",
        "pad_token_id",
        "return_dict_in_generate",
        "stop_strings",
        "temperature",
        "top_k",
        "top_p",
        "transformers_version",
        "use_cache",
    }
)
# What `generate` hands on to the model or watches with.
_INPUTS = frozenset(
    {
        "attention_mask",
        "cache",
        "decoder_attention_mask",
        "decoder_input_ids",
        "encoder_outputs",
        "input_ids",
        "inputs",
        "inputs_embeds",
        "past_key_values",
        "position_ids",
        "stopping_criteria",
        "streamer",
        "synced_gpus",
        "token_type_ids",
        "tokenizer",
    }
)
_NEUTRAL = MappingProxyType(
    {"num_beams": 1, "repetition_penalty": 1, "length_penalty": 1, "no_repeat_ngram_size": 0, "typical_p": 1}
)


class Vocabulary(nn.Linear):
    """The replacement of a head of many words, with its tensors.

    Calls of few tokens read int8: if the weight holds only such numbers, logits are those of float32 but for the order
    of the sums. Else only within `first_matter` words are rounded, of which the first are exact.
    """

    def __init__(self, head: nn.Linear, threads: int | None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = head.in_features, head.out_features
        self.weight, self.bias = head.weight, head.bias
        self._threads = threads
        array = self.weight.detach().numpy()
        self._exact = exact_int8(array)
        self._rounded = None if self._exact else RoundedVocabulary(array)
        self.eval()

    @property
    def extra_nbytes(self) -> int:
        """Bytes beside the weight and the bias."""
        held = self._exact or self._rounded
        return held.nbytes if held else 0

    def forward(self, x: Tensor) -> Tensor:
        """(…, features) to logits, (…, words)."""
        few = x.numel() <= FEW * self.in_features and x.dtype == torch.float32 and not x.requires_grad
        if few and (self._exact or (_TOP.get() and self._rounded)):
            rows = x.reshape(-1, self.in_features).contiguous()
            y = torch.empty(len(rows), self.out_features)
            if self._multiply(rows, y):
                return y.view(*x.shape[:-1], self.out_features)
        return linear(x, self.weight, self.bias)

    def _multiply(self, x: Tensor, y: Tensor) -> bool:
        """Whether it has written y."""
        threads = self._threads or torch.get_num_threads()
        places = (x.data_ptr(), y.data_ptr(), len(x))
        if self._exact:
            return self._exact.linear(*places, bias=address(self.bias), threads=threads)
        assert self._rounded is not None  # noqa: S101 (there is one of the two)
        return self._rounded.product(
            *places, weight=address(self.weight), bias=address(self.bias), top=_TOP.get(), threads=threads
        )


class Generate:
    """The replacement of a model's `generate`: within it, its `Vocabulary` knows how many words matter."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `generate` of transformers."""
        names = ("inputs", "generation_config")
        given = dict(zip(names, args, strict=False)) | kwargs
        top = first_words(self._model.generation_config, given) if len(args) <= len(names) else 0
        before = _TOP.set(top)
        try:
            return type(self._model).generate(self._model, *args, **kwargs)
        finally:
            _TOP.reset(before)


def first_words(own: GenerationConfig, given: Mapping[str, Any]) -> int:
    """Of how many words the exact logits decide what `generate` writes; 0 if that can be all of them.

    Whatever is not known to look only at the first words, such as a penalty, a beam's sum or a function of one's own,
    can be all.

    Args:
        own: the model's settings.
        given: the arguments of the call.
    """
    passed = dict(given)
    config = passed.pop("generation_config", None)
    sources = [own.to_dict(), {} if config is None else config.to_dict(), passed]
    unknown = {
        name
        for source in sources
        for name, value in source.items()
        if name not in _ONLY_FIRST and name not in _INPUTS and not _is_neutral(name, value)
    }
    if unknown or any(np.size(source.get("eos_token_id")) >= _GREEDY for source in sources):
        return 0
    if not any(source.get("do_sample") for source in sources):
        return _GREEDY
    tops = [source["top_k"] for source in sources if source.get("top_k") is not None]
    most = max([*tops, _GREEDY])  # transformers takes 50 if none says it
    return max(most, 50) if all(0 < top <= _MOST for top in tops) else 0


def _is_neutral(name: str, value: Any) -> bool:
    return value is None or value is False or (name in _NEUTRAL and value == _NEUTRAL[name])


def speed_up_head(model: Any, threads: int | None) -> None:
    """Replaces, in place, the head of a model that writes text if it is large, and `generate`, which tells it more."""
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or head.out_features < SMALLEST or head._forward_hooks or head._forward_pre_hooks:
        return
    for path, module in model.named_modules():
        if module is head:
            model.set_submodule(path, Vocabulary(head, threads))
            break
    model.generate = Generate(model)
