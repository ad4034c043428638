"""Tiny artifacts that write text: decoders whose tokens are bytes, so that most characters are several tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tests.unit.serving.conftest import tiny_result
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mvprune.artifact import round_values, save_model
from mvprune.serving.engine import native_engine
from mvprune.serving.writing import Writer
from mvprune_core.prediction import Predictor

END = "<|end|>"
CHAT = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ raise_exception('no system, please') }}{% endif %}"
    "[{{ message.role }}] {{ message.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)
POSITIONS = 64
ENGINES = ("native", "torch")


def byte_tokenizer(chat_template: str | None = None) -> transformers.PreTrainedTokenizerFast:
    """A token for each byte, and one that ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({END: 0, **{byte: number for number, byte in enumerate(alphabet, 1)}}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END)
    tokenizer.chat_template = chat_template
    return tokenizer


def write_decoder(folder: Path, chat_template: str | None = None, **settings: Any) -> Path:
    """A GPT-2 of two layers with these settings of generation."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=257, n_embd=32, n_layer=2, n_head=2, n_positions=POSITIONS, initializer_range=0.5, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model: Any = transformers.GPT2LMHeadModel(config).eval()
    pruned = [name for name, value in model.named_parameters() if ".h." in name and value.ndim == 2]
    with torch.no_grad():
        for name in pruned:
            model.get_parameter(name).mul_((torch.rand_like(model.get_parameter(name)) < 0.3).float())
    round_values(model, pruned)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    save_model(
        folder, model, byte_tokenizer(chat_template), pruned=pruned, result=tiny_result("causal-lm", model, pruned)
    )
    return folder


class Served(NamedTuple):
    """An artifact that writes text in an engine.

    Attributes:
        writer: the engine's.
        predictor: of its plain predictions.
        dense: the same artifact in torch.
    """

    writer: Writer
    predictor: Any
    dense: Predictor


Opening = Callable[..., Served]


def opening(new_folder: Callable[[], Path]) -> Opening:
    """What opens decoders, each once: an engine, a chat template, settings of generation."""

    @cache
    def dense(chat_template: str | None, **settings: Any) -> tuple[Path, Predictor]:
        folder = write_decoder(new_folder() / "out", chat_template, **settings)
        return folder, Predictor.open(folder)

    @cache
    def opened(engine: str, chat_template: str | None = None, **settings: Any) -> Served:
        folder, predictor = dense(chat_template, **settings)
        if engine == "torch":
            assert predictor.writer
            return Served(predictor.writer, predictor, predictor)
        native = native_engine(folder, threads=1, activations=None, hypotheses=None)
        assert native.writer
        return Served(native.writer, native.predictor, predictor)

    return opened


def generated(served: Served, text: str, seed: int = 0, begin: str = END, **settings: Any) -> str:
    """The text by transformers only."""
    loaded: Any = served.dense.opened.loaded
    ids = loaded.tokenizer(f"{begin}{text}", return_tensors="pt")
    torch.manual_seed(seed)
    written = loaded.model.generate(**ids, pad_token_id=0, **settings)
    found: str = loaded.tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    return found
