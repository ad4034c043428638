"""The ONNX files of models that write text: the keys and values of the tokens so far are inputs and outputs.

Files, inputs and outputs have Optimum's names and order, which other programs know.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig
from transformers.cache_utils import DynamicLayer

from mvprune.artifact.errors import ArtifactError
from mvprune.export.examples import SHAPES, example, longest
from mvprune.export.graphs import ONNX_FILE, TOLERANCE, Graph, Graphs, OneGraph, Session, largest, refusing
from mvprune.runtime._layer import CACHES
from mvprune.runtime._onnx import quiet

ENCODER_FILE, DECODER_FILE, NEXT_FILE = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"
_PAST, _PRESENT = "past_key_values.", "present."
_NEW = 6  # tokens that are written in a check
_TWICE = f"the decoder's weights are in {DECODER_FILE}, for the first token, and in {NEXT_FILE}, for the others"


def graphs_of(model: Any) -> Graphs:
    """The files of a model: with a cache of keys and values if it writes text and has one. XLNet and Mamba, for
    example, keep something else."""
    if not model.can_generate() or not any(name in inspect.signature(model.forward).parameters for name in CACHES):
        return OneGraph(model)
    if not all(isinstance(layer, DynamicLayer) for layer in DynamicCache(config=model.config).layers):
        return OneGraph(model)
    return EncoderDecoderGraphs(model) if model.config.is_encoder_decoder else DecoderGraphs(model)


class _Cached(nn.Module):
    """A model that takes the arrays of its cache by name, and returns them so."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        known = inspect.signature(model.forward).parameters
        self.argument = next(name for name in CACHES if name in known)

    def logits(self, cache: Any, **inputs: Any) -> Tensor:
        """Of the model; `cache` receives the keys and values of its tokens."""
        logits: Tensor = self.model(**inputs, **{self.argument: cache}, use_cache=True, return_dict=True).logits
        return logits


class _Decoder(_Cached):
    """(examples, tokens) to logits and present.LAYER.key and .value (examples, heads, past + tokens, size of a head).
    Without arrays of past tokens it begins a text."""

    def forward(self, *, return_dict: bool, **inputs: Tensor) -> dict[str, Tensor]:
        cache = _cache(inputs, "")
        logits = self.logits(cache, **{name: value for name, value in inputs.items() if not name.startswith(_PAST)})
        return {"logits": logits, **_arrays({"": cache})}


class _Encoder(nn.Module):
    """(examples, tokens) to last_hidden_state (examples, tokens, hidden)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, *, return_dict: bool, **inputs: Tensor) -> dict[str, Tensor]:
        return {"last_hidden_state": self.encoder(**inputs, return_dict=True).last_hidden_state}


class _Decoding(_Cached):
    """A decoder that reads an encoder: for the first token its output, later its keys and values."""

    def forward(
        self,
        *,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        return_dict: bool,
        encoder_hidden_states: Tensor | None = None,
        **past: Tensor,
    ) -> dict[str, Tensor]:
        cache = EncoderDecoderCache(_cache(past, "decoder."), _cache(past, "encoder."))
        first = encoder_hidden_states is not None
        if encoder_hidden_states is None:  # the model demands them, and computes nothing from them
            width = self.model.get_encoder().config.hidden_size
            encoder_hidden_states = torch.zeros(*encoder_attention_mask.shape, width)
        logits = self.logits(
            cache,
            decoder_input_ids=input_ids,
            encoder_outputs=(encoder_hidden_states,),
            attention_mask=encoder_attention_mask,
        )
        caches = {"decoder.": cache.self_attention_cache}
        if first:
            caches["encoder."] = cache.cross_attention_cache
        return {"logits": logits, **_arrays(caches)}


def _cache(inputs: Mapping[str, Tensor], kind: str) -> DynamicCache:
    """A cache of arrays. It keeps all tokens, also those that a sliding window has passed: masks leave them out."""
    cache = DynamicCache()
    keys = f".{kind}key"
    for name, array in inputs.items():
        if name.startswith(_PAST) and name.endswith(keys):
            layer = name.removeprefix(_PAST).removesuffix(keys)
            cache.update(array, inputs[f"{_PAST}{layer}.{kind}value"], int(layer))
    return cache


def _arrays(caches: Mapping[str, DynamicCache]) -> dict[str, Tensor]:
    """The arrays of each layer, of one kind after the other."""
    found: dict[str, Tensor] = {}
    for number, layers in enumerate(zip(*(cache.layers for cache in caches.values()), strict=True)):
        layer: Any
        for kind, layer in zip(caches, layers, strict=True):
            found |= {f"{_PRESENT}{number}.{kind}key": layer.keys, f"{_PRESENT}{number}.{kind}value": layer.values}
    return found


def _past(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of the next call that an earlier one returned."""
    return {_PAST + name.removeprefix(_PRESENT): value for name, value in outputs.items() if name.startswith(_PRESENT)}


def _axes(inputs: Mapping[str, Tensor], kind: str, length: str) -> dict[str, dict[int, str]]:
    """Names of the axes of keys and values."""
    return {name: {0: "batch_size", 2: length} for name in inputs if name.startswith(_PAST) and f".{kind}" in name}


class _Writing(Graphs):
    """Files that write text. Their check goes through texts of torch's `generate` token by token: the logits and the
    most probable token are the same at each."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        with refusing(model, "its attention cannot be traced"):
            model.set_attn_implementation("eager")  # sdpa takes a mask by sizes that an export leaves open

    def check(self, folder: Path, tolerance: float = TOLERANCE) -> float:
        found = 0.0
        sessions = {graph.file: self.open(folder / graph.file) for graph in self.all()}
        for examples, tokens in SHAPES:
            source = self.source(examples, tokens)
            text = self.generated(source)
            wanted, kept = self.wanted(source, text).numpy(), self.kept(source, text).numpy() == 1
            at = 0
            for session, logits in self.written(sessions, source, text):
                start, at = at, at + logits.shape[1]
                some = kept[:, start:at]
                off = session.difference("logits", logits[some], wanted[:, start:at][some], tolerance)
                found = max(found, off)
                if at >= text.shape[1] - _NEW:
                    _same_token(session, logits[:, -1], wanted[:, at - 1], text[:, at].numpy(), tolerance)
        return found

    def generated(self, source: dict[str, Tensor]) -> Tensor:
        """A prompt, or the first token of a decoder, and what torch's `generate` writes: (examples, tokens)."""
        first = (getattr(self.model.config, name, None) for name in ("decoder_start_token_id", "bos_token_id"))
        start = next((token for token in first if token is not None), 0)
        # Without the model's own settings, which may have beams or forbid tokens.
        settings: Any = GenerationConfig
        self.model.generation_config = settings(decoder_start_token_id=start, pad_token_id=0)
        with quiet(), refusing(self.model, "it cannot write a text from random tokens"):
            text: Tensor = self.model.generate(**source, do_sample=False, max_new_tokens=_NEW, use_cache=True)
        return text

    @abstractmethod
    def source(self, examples: int, tokens: int) -> dict[str, Tensor]:
        """Random inputs of `generate`."""

    @abstractmethod
    def wanted(self, source: dict[str, Tensor], text: Tensor) -> Tensor:
        """Torch's logits for all tokens of a text at once."""

    @abstractmethod
    def kept(self, source: dict[str, Tensor], text: Tensor) -> Tensor:
        """Which tokens of a text are not padding."""

    @abstractmethod
    def written(
        self, sessions: dict[str, Session], source: dict[str, Tensor], text: Tensor
    ) -> Iterator[tuple[Session, np.ndarray]]:
        """Logits of onnxruntime for some tokens of a text after the other, all but the last one."""


class DecoderGraphs(_Writing):
    """model.onnx, which begins a text, with arrays of no past tokens, or goes on with it."""

    def all(self) -> list[Graph]:
        source, begun = self.source(*SHAPES[0]), 5
        inputs, decoder = self._inputs(source, source["input_ids"]), _Decoder(self.model)
        first = {name: value[:, :begun] for name, value in inputs.items()}
        rest = {name: value if name == "attention_mask" else value[:, begun:] for name, value in inputs.items()}
        past = _past(self.run(decoder, first))
        sizes = {name: {0: "batch_size", 1: "sequence_length"} for name in rest}
        sizes["attention_mask"] = {0: "batch_size", 1: "past_sequence_length + sequence_length"}
        return [Graph(ONNX_FILE, decoder, rest | past, sizes | _axes(past, "", "past_sequence_length"))]

    def source(self, examples: int, tokens: int) -> dict[str, Tensor]:
        """Prompts, with the padding before them."""
        source = example(self.model, examples, max(1, min(tokens, longest(self.model) - _NEW)))
        order = source["attention_mask"].argsort(dim=1, stable=True)
        return {name: source[name].gather(1, order) for name in ("input_ids", "attention_mask")}

    def wanted(self, source: dict[str, Tensor], text: Tensor) -> Tensor:
        return self.run(self.model, self._inputs(source, text))["logits"]

    def kept(self, source: dict[str, Tensor], text: Tensor) -> Tensor:
        mask = source["attention_mask"]
        return torch.cat([mask, mask.new_ones(len(mask), text.shape[1] - mask.shape[1])], dim=1)

    def written(
        self, sessions: dict[str, Session], source: dict[str, Tensor], text: Tensor
    ) -> Iterator[tuple[Session, np.ndarray]]:
        inputs = self._inputs(source, text)
        (graph,), session = self.all(), sessions[ONNX_FILE]
        past: dict[str, Any] = {
            name: value.numpy()[:1, :, :0].repeat(len(text), 0)
            for name, value in graph.example.items()
            if name.startswith(_PAST)
        }
        prompt = text.shape[1] - _NEW
        ends = [end for end in (prompt // 2, *range(prompt, text.shape[1])) if end]  # a prompt may come in parts
        for start, end in zip([0, *ends], ends, strict=False):
            parts = {name: value[:, 0 if name == "attention_mask" else start : end] for name, value in inputs.items()}
            outputs = session({name: value.numpy() for name, value in parts.items()} | past)
            yield session, outputs["logits"]
            past = _past(outputs)

    def _inputs(self, source: dict[str, Tensor], text: Tensor) -> dict[str, Tensor]:
        """Those for all tokens of a text, with the positions that `generate` gives if the model takes them."""
        mask = self.kept(source, text)
        inputs = {"input_ids": text, "attention_mask": mask}
        if "position_ids" in inspect.signature(self.model.forward).parameters:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return inputs


class EncoderDecoderGraphs(_Writing):
    """A file for the encoder, one for the first token, and one for each token after it."""

    notes = (_TWICE,)

    def all(self) -> list[Graph]:
        encoder, decoder, source = _Encoder(self.model), _Decoding(self.model), self.source(*SHAPES[0])
        read = {0: "batch_size", 1: "encoder_sequence_length"}
        mask = {"encoder_attention_mask": source["attention_mask"]}
        first = {
            "input_ids": torch.zeros(len(source["input_ids"]), 3, dtype=torch.long),
            "encoder_hidden_states": self.run(encoder, source)["last_hidden_state"],
            **mask,
        }
        past = _past(self.run(decoder, first))
        then = {"input_ids": first["input_ids"][:, :1], **mask, **past}
        own = {"input_ids": {0: "batch_size", 1: "decoder_sequence_length"}}
        return [
            Graph(ENCODER_FILE, encoder, source, dict.fromkeys(source, read)),
            Graph(DECODER_FILE, decoder, first, dict.fromkeys(first, read) | own),
            Graph(
                NEXT_FILE,
                decoder,
                then,
                {"input_ids": {0: "batch_size"}}
                | dict.fromkeys(mask, read)
                | _axes(past, "decoder.", "past_decoder_sequence_length")
                | _axes(past, "encoder.", "encoder_sequence_length"),
            ),
        ]

    def source(self, examples: int, tokens: int) -> dict[str, Tensor]:
        source = example(self.model, examples, tokens)
        return {name: source[name] for name in ("input_ids", "attention_mask")}

    def wanted(self, source: dict[str, Tensor], text: Tensor) -> Tensor:
        return self.run(self.model, source | {"decoder_input_ids": text})["logits"]

    def kept(self, source: dict[str, Tensor], text: Tensor) -> Tensor:
        return torch.ones_like(text)

    def written(
        self, sessions: dict[str, Session], source: dict[str, Tensor], text: Tensor
    ) -> Iterator[tuple[Session, np.ndarray]]:
        ids, inputs = text.numpy(), {name: value.numpy() for name, value in source.items()}
        mask = {"encoder_attention_mask": inputs["attention_mask"]}
        session, hidden = sessions[DECODER_FILE], sessions[ENCODER_FILE](inputs)["last_hidden_state"]
        past: dict[str, Any] = {"encoder_hidden_states": hidden}  # in place of it, until there is one
        for at in range(ids.shape[1] - 1):
            outputs = session({"input_ids": ids[:, at : at + 1], **mask, **past})
            yield session, outputs["logits"]
            past = _past(outputs) if session.file == DECODER_FILE else past | _past(outputs)
            session = sessions[NEXT_FILE]


def _same_token(session: Session, logits: np.ndarray, wanted: np.ndarray, token: np.ndarray, tolerance: float) -> None:
    """Refuses logits (examples, vocabulary) whose most probable token is not the one that torch wrote, unless the two
    are as probable."""
    rows = np.arange(len(token))
    apart = np.abs(wanted[rows, token] - wanted[rows, logits.argmax(-1)]).max()
    if apart > 2 * tolerance * largest(wanted):
        raise ArtifactError(f"{session.file}: the tokens that it writes must be those of torch's generate")
